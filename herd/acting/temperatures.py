"""The temperatures that games are played under (DiCE, arXiv:2106.00707): tau = 1, or drawn from one range for each task.

A third source is a run's service (`herd.acting.served_temperatures`). E environments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from herd.envs.api import FinishedGame

Bounds = tuple[float, float]
"""1/tau, lowest and highest."""


class Temperatures:
    """tau = 1 throughout; other sources derive from it. A game's temperature changes where it starts, and nowhere else."""

    def of_row(self, game_reset: NDArray[np.bool_]) -> NDArray[np.float32] | None:  # noqa: ARG002  for those who draw
        """1/tau [E], for a row whose games start where ``game_reset`` [E] says; None: 1 everywhere. Rows come in order."""
        return None

    def finished(self, games: Sequence[FinishedGame], episode_ids: NDArray[np.int64]) -> None:
        """Take note of games that the last step ended; ``episode_ids`` [E] numbers them."""


class RangeTemperatures(Temperatures):
    """Each game's drawn anew from the range of its task."""

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
