"""The temperatures of an actor's games, from the run's bandit service. E environments."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

from herd.acting.temperatures import ServedTemperatures
from herd.files import replace_file
from herd.protocols.bandit.client import BanditClient
from herd.protocols.bandit.tiling import tiling_of
from herd.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from herd.components.suites.api import FinishedGame
    from herd.service.process import ServiceProcess

DRAIN_SECONDS = 1.0
"""Longest wait at a stop for the bandit to count the last games."""


class ReportedTemperatures(ServedTemperatures):
    """Reports the return of each game and its temperature to the service."""

    def __init__(self, process: ServiceProcess, *, agent: int, task_ids: NDArray[np.int32], first_slot: int) -> None:
        settings = process.settings
        self._settings = settings
        self._agent = agent
        self._tiling = tiling_of(settings.bandit)
        self._played = _Games()
        self._dropped = _Games()
        client = BanditClient(
            process.context,
            process.identity.address("bandit"),
            run_id=settings.name,
            agent=agent,
            contract=process.contract,
            task_ids=task_ids.tolist(),
            timeout_seconds=settings.actor.bandit_timeout_seconds,
            first_slot=first_slot,
        )
        super().__init__(client, len(task_ids))

    def finished(self, games: Sequence[FinishedGame], episode_ids: NDArray[np.int64]) -> None:
        """Report the games that ended in the last step."""
        for game in games:
            tile = self._tiling.tile_of(float(self._client.inverse_temperatures[game.environment]))
            self._played.add(game.task_id, tile, game.episode_return)
            dropped = self._client.finish(
                game.environment,
                episode_id=int(episode_ids[game.environment]),
                episode_return=game.episode_return,
                agent_steps=game.agent_steps,
            )
            if dropped is not None:
                self._dropped.add(dropped.task_id, self._tiling.tile_of(dropped.inverse_temperature), dropped.episode_return)
        self._client.poll()

    def close(self, number: int) -> None:
        """Send the last reports to the bandit, for a second at most, and write this actor's own record of its games.

        RUN/bandit/actors/<number>-<random>.json contains ``agent``; ``games``, as [task_id, tile, games, sum of returns] for each tile;
        ``dropped``, the same for games that were never reported; and ``unconfirmed``, the number of games that the bandit may or may not
        have counted.
        """
        if not self._client.drain(DRAIN_SECONDS):
            get_logger().warning("the bandit did not confirm the last games", unconfirmed=self._client.num_unconfirmed)
        account = {
            "agent": self._agent,
            "unconfirmed": self._client.num_unconfirmed,
            "games": self._played.rows(),
            "dropped": self._dropped.rows(),
        }
        folder = self._settings.directory / "bandit" / "actors"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / f"{number}-{secrets.token_hex(8)}.json", json.dumps(account) + "\n")
        except OSError as error:
            get_logger().warning("the record of games could not be written", reason=error.strerror or str(error))
        self._client.close()


class _Games:
    """Number of games and sum of their returns, by task and tile."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], list[float]] = {}

    def add(self, task_id: int, tile: int, episode_return: float) -> None:
        sums = self._sums.setdefault((task_id, tile), [0, 0.0])
        sums[0] += 1
        sums[1] += episode_return

    def rows(self) -> list[list[float]]:
        """[task_id, tile, games, sum of returns] each."""
        return sorted([*key, *sums] for key, sums in self._sums.items())
