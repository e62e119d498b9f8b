"""The temperatures for evaluating a DiCE run, which the bandit draws from its best tile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.acting.served_temperatures import ServedTemperatures
from herd.protocols.bandit.client import BanditClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from herd.components.suites.api import FinishedGame
    from herd.config.run import RunSettings
    from herd.transport.context import Context


class BestTemperatures(ServedTemperatures):
    """Requests a temperature for each game, and reports no returns, because evaluation must not influence learning."""

    def __init__(
        self, context: Context, settings: RunSettings, address: str, *, agent: int, contract: str, task_ids: NDArray[np.int32]
    ) -> None:
        """``address`` is the bandit's. ``task_ids``, [E]: the tasks by their numbers in the run."""
        client = BanditClient(
            context,
            address,
            run_id=settings.name,
            agent=agent,
            contract=contract,
            task_ids=task_ids.tolist(),
            timeout_seconds=settings.actor.bandit_timeout_seconds,
            purpose="evaluation",
        )
        super().__init__(client, len(task_ids))

    def finished(self, games: Sequence[FinishedGame], episode_ids: NDArray[np.int64]) -> None:
        """Request the temperatures of the next games."""
        for game in games:
            self._client.ask(game.environment, int(episode_ids[game.environment]) + 1)
        self._client.poll()

    def close(self) -> None:
        """Close at once."""
        self._client.close()
