"""The temperatures that a DiCE run's games are evaluated under: the service draws them from the tile that it values most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from herd.acting.temperatures import Temperatures
from herd.telemetry.logs import warn_limited
from herd.wire.bandit_client import BanditClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from herd.config.settings import RunSettings
    from herd.envs.api import FinishedGame
    from herd.wire.sockets import Context


class BestTemperatures(Temperatures):
    """Asks for each game's, and tells the service nothing: evaluation must not influence learning."""

    def __init__(self, context: Context, settings: RunSettings, *, agent: int, contract: str, task_ids: NDArray[np.int32]) -> None:
        """``task_ids`` [E], by the run's numbers."""
        own = settings.evaluation
        self._client = BanditClient(
            context,
            own.bandit,
            run_id=settings.name,
            agent=agent,
            contract=contract,
            task_ids=task_ids.tolist(),
            timeout_seconds=settings.actor.bandit_timeout_seconds,
            purpose="evaluation",
        )
        for environment in range(len(task_ids)):
            self._client.ask(environment, 0)

    def of_row(self, game_reset: NDArray[np.bool_]) -> NDArray[np.float32]:
        """See `Temperatures.of_row`; where the service does not answer in time, tau stays what it was, 1 in the first game."""
        if game_reset.any():
            self._client.begin(np.flatnonzero(game_reset))
            if self._client.is_silent:
                reason = self._client.refused or "no answer"
                warn_limited("bandit", "games begin under the last temperatures of their environments", reason=reason)
        else:
            self._client.poll()
        return self._client.inverse_temperatures

    def finished(self, games: Sequence[FinishedGame], episode_ids: NDArray[np.int64]) -> None:
        """Ask for the temperatures of the games that follow."""
        for game in games:
            self._client.ask(game.environment, int(episode_ids[game.environment]) + 1)
        self._client.poll()

    def close(self) -> None:
        """Close at once."""
        self._client.close()
