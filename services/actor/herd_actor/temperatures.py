"""The temperatures that an actor's games are played under. Without a bandit it costs a comparison a step.

E environments.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import numpy as np

from herd.config.tiling import tiling_of
from herd.service.files import replace_file
from herd.telemetry.logs import get_logger, warn_limited
from herd.wire.bandit_client import BanditClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from herd.config.settings import RunSettings
    from herd.envs.api import FinishedGame
    from herd.wire.sockets import Context

DRAIN_SECONDS = 1.0
"""At a stop, for the bandit to count the last games."""


class GameTemperatures:
    """1/tau of each environment, from the run's bandit, or 1 throughout. It changes where a game starts, and nowhere else."""

    def __init__(self, context: Context, settings: RunSettings, *, contract: str, task_ids: NDArray[np.int32], first_slot: int) -> None:
        self._client: BanditClient | None = None
        self._settings = settings
        self._tiling = tiling_of(settings.bandit)
        self._played = _Games()
        self._dropped = _Games()
        self._num_environments = len(task_ids)
        if settings.has_bandit:
            self._client = BanditClient(
                context,
                settings.actor.bandit,
                run_id=settings.name,
                contract=contract,
                task_ids=task_ids.tolist(),
                timeout_seconds=settings.actor.bandit_timeout_seconds,
                first_slot=first_slot,
            )

    @property
    def inverse_temperatures(self) -> NDArray[np.float32] | None:
        """[E] for the policy; None: tau is 1 everywhere."""
        return None if self._client is None else self._client.inverse_temperatures

    @property
    def of_rows(self) -> NDArray[np.float32] | float:
        """[E] for the unroll, or one for all."""
        return 1.0 if self._client is None else self._client.inverse_temperatures

    def ask_for_first_games(self) -> None:
        """Before the first row: every environment begins its game 0."""
        if self._client is not None:
            for environment in range(self._num_environments):
                self._client.ask(environment, 0)
            self._client.poll()

    def before_row(self, game_reset: NDArray[np.bool_]) -> None:
        """Before a row is acted on: ``game_reset`` [E] says where it starts a game. Waits for the bandit there, with a bound."""
        if self._client is None:
            return
        if game_reset.any():
            self._client.begin(np.flatnonzero(game_reset))
            if self._client.is_silent:
                reason = self._client.refused or "no answer"
                warn_limited("bandit", "games begin under the last temperatures of their environments", reason=reason)
        else:
            self._client.poll()

    def finished(self, games: Iterable[FinishedGame], episode_id: Callable[[int], int]) -> None:
        """Report games that the last step ended; ``episode_id`` numbers the game that an environment is in."""
        if self._client is None:
            return
        for game in games:
            tile = self._tiling.tile_of(float(self._client.inverse_temperatures[game.environment]))
            self._played.add(game.task_id, tile, game.episode_return)
            dropped = self._client.finish(
                game.environment,
                episode_id=episode_id(game.environment),
                episode_return=game.episode_return,
                agent_steps=game.agent_steps,
            )
            if dropped is not None:
                self._dropped.add(dropped.task_id, self._tiling.tile_of(dropped.inverse_temperature), dropped.episode_return)
        self._client.poll()

    def close(self, index: int) -> None:
        """Let the bandit count what it was not told yet, a second at most, and leave this actor's own account of its games.

        RUN/bandit/actors/<index>-<random>.json: ``games`` and those among them that the bandit was never told of, ``dropped``, as
        [task_id, tile, games, sum of returns] of each tile; and the number that it may or may not have counted, ``unconfirmed``.
        """
        if self._client is None:
            return
        if not self._client.drain(DRAIN_SECONDS):
            get_logger().warning("the bandit did not count the last games", unconfirmed=self._client.num_unconfirmed)
        account = {"unconfirmed": self._client.num_unconfirmed, "games": self._played.rows(), "dropped": self._dropped.rows()}
        folder = self._settings.directory / "bandit" / "actors"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / f"{index}-{secrets.token_hex(8)}.json", json.dumps(account) + "\n")
        except OSError as error:
            get_logger().warning("the account of games could not be written", reason=error.strerror or str(error))
        self._client.close()


class _Games:
    """Games and the sum of their returns, by task and tile."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], list[float]] = {}

    def add(self, task_id: int, tile: int, episode_return: float) -> None:
        sums = self._sums.setdefault((task_id, tile), [0, 0.0])
        sums[0] += 1
        sums[1] += episode_return

    def rows(self) -> list[list[float]]:
        """[task_id, tile, games, sum of returns] each."""
        return sorted([*key, *sums] for key, sums in self._sums.items())
