"""The temperatures of games (DiCE, arXiv:2106.00707): tau = 1, drawn from a range for each task, or from a run's bandit service.

E environments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from herd.telemetry.logs import warn_limited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from herd.components.suites.api import FinishedGame
    from herd.protocols.bandit.client import BanditClient

Bounds = tuple[float, float]
"""Lowest and highest 1/tau."""


class Temperatures:
    """tau = 1 for all games; other sources are subclasses. A temperature changes only at the start of a game."""

    def of_row(self, game_reset: NDArray[np.bool_]) -> NDArray[np.float32] | None:  # noqa: ARG002  for subclasses
        """Return 1/tau, [E], for a row whose games start at ``game_reset`` [E]; None: 1 everywhere. Rows must be passed in order."""
        return None

    def finished(self, games: Sequence[FinishedGame], episode_ids: NDArray[np.int64]) -> None:
        """Record games that ended in the last step; ``episode_ids`` [E] are their numbers."""


class RangeTemperatures(Temperatures):
    """Draws a temperature for each game from the range of its task."""

    def __init__(self, ranges: Sequence[Bounds], task_ids: NDArray[np.int32], seed: int) -> None:
        """``ranges`` by task, ``task_ids`` [E]."""
        # Uniform in x = log(1 + 1/tau), as in training.
        self._low, self._high = np.log1p(np.array([ranges[task_id] for task_id in task_ids], np.float64).reshape(-1, 2)).T
        self._generator = np.random.default_rng(seed)
        self._inverse = np.ones(len(task_ids), np.float32)

    def of_row(self, game_reset: NDArray[np.bool_]) -> NDArray[np.float32]:
        """See `Temperatures.of_row`."""
        if game_reset.any():
            self._inverse[game_reset] = np.expm1(self._generator.uniform(self._low[game_reset], self._high[game_reset]))
        return self._inverse


class ServedTemperatures(Temperatures):
    """Requests a temperature for the first game of each environment, and uses each answer when its game starts.

    Subclasses request the temperatures of the following games.
    """

    def __init__(self, client: BanditClient, num_environments: int) -> None:
        self._client = client
        for environment in range(num_environments):
            client.ask(environment, 0)

    def of_row(self, game_reset: NDArray[np.bool_]) -> NDArray[np.float32]:
        """See `Temperatures.of_row`. Waits for the service when games start. After a limit, the last tau is kept, which is 1 at first."""
        if game_reset.any():
            self._client.begin(np.flatnonzero(game_reset))
            if self._client.is_silent:
                reason = self._client.refused or "no answer"
                warn_limited("bandit", "games start with the last temperatures of their environments", reason=reason)
        else:
            self._client.poll()
        return self._client.inverse_temperatures
