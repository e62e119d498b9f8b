"""The temperatures of games (DiCE, arXiv:2106.00707): tau = 1, or drawn from a range for each task.

A third source is the bandit service (`herd.acting.served_temperatures`). E environments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from herd.components.suites.api import FinishedGame

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
