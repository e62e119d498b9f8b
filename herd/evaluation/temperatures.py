"""The temperatures that a run's games are evaluated under: of the tile that its bandit values most (DiCE, arXiv:2106.00707)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from herd.evaluation.trained_run import EvaluationError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from herd.evaluation.trained_run import TrainedRun

STATES = ("bandit/state.json", "bandit/state.previous.json")
"""Of the bandit service, newest first."""
Bounds = tuple[float, float]
"""1/tau, lowest and highest."""


@dataclass(frozen=True, slots=True)
class BestTemperatures:
    """By task, the best-valued tile; None where tau is 1 throughout."""

    bounds: tuple[Bounds, ...]

    def draw(self, task_ids: NDArray[np.int32], generator: np.random.Generator) -> NDArray[np.float32]:
        """1/tau for games of ``task_ids`` [N], uniform within the tile in x = log(1 + 1/tau), as the bandit draws."""
        low, high = np.log1p(np.array([self.bounds[task_id] for task_id in task_ids], np.float64).reshape(-1, 2)).T
        drawn: NDArray[np.float32] = np.expm1(generator.uniform(low, high)).astype(np.float32)
        return drawn


class GamesTemperatures:
    """1/tau of E environments, drawn anew where a game starts."""

    def __init__(self, best: BestTemperatures, task_ids: NDArray[np.int32], seed: int) -> None:
        self._best = best
        self._task_ids = task_ids
        self._generator = np.random.default_rng(seed)
        self._inverse = np.ones(len(task_ids), np.float32)

    def of_row(self, game_reset: NDArray[np.bool_]) -> NDArray[np.float32]:
        """[E], for a row whose games start where ``game_reset`` [E] says."""
        starting = np.flatnonzero(game_reset)
        if len(starting):
            self._inverse[starting] = self._best.draw(self._task_ids[starting], self._generator)
        return self._inverse


def best_temperatures(run_dir: Path, run: TrainedRun) -> BestTemperatures | None:
    """Of a run with a bandit, from its newest state that can be read; None where games are played with tau = 1.

    A task whose bandit has seen no return yet is played with tau = 1.

    Raises:
        EvaluationError: a run with a bandit that left no state.

    """
    if not run.settings.has_bandit:
        return None
    for name in STATES:
        try:
            bandits = json.loads((run_dir / name).read_text())["state"]["bandits"]
            best = {bandit["task"]: bandit["best_inverse_temperatures"] for bandit in bandits if bandit["agent"] == 0}
            bounds = tuple(_bounds(best.get(task)) for task in run.spec.task_names)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        return BestTemperatures(bounds)
    raise EvaluationError(f"{run_dir} holds no readable {STATES[0]}: its bandit, which says which temperatures are best, wrote none")


def _bounds(best: list[float] | None) -> Bounds:
    return (1.0, 1.0) if best is None else (float(best[0]), float(best[1]))
