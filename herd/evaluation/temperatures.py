"""The temperatures that a run's games are evaluated under: of the tile that training valued most (DiCE, arXiv:2106.00707)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.config.foreign_files import read_json
from herd.config.run_files import agent_number, whole_run
from herd.evaluation.errors import EvaluationError

if TYPE_CHECKING:
    from pathlib import Path

    from herd.acting.temperatures import Bounds
    from herd.evaluation.trained_run import TrainedRun

STATES = ("bandit/state.json", "bandit/state.previous.json")
"""Newest first."""


def best_temperatures(run_dir: Path, run: TrainedRun) -> tuple[Bounds, ...] | None:
    """By task, from the run's newest state that can be read; None where games are played with tau = 1.

    A task of which no return has come yet is played with tau = 1.

    Raises:
        EvaluationError: the run drew temperatures, and left no state.

    """
    if not run.settings.loss.draws_temperatures:
        return None
    agent = agent_number(run_dir)
    for name in STATES:
        try:
            bandits = read_json(whole_run(run_dir) / name)["state"]["bandits"]
            best = {bandit["task"]: bandit["best_inverse_temperatures"] for bandit in bandits if bandit["agent"] == agent}
            return tuple(_bounds(best.get(task)) for task in run.spec.task_names)
        except (OSError, ValueError, LookupError, TypeError):
            continue
    raise EvaluationError(f"{run_dir} holds no readable {STATES[0]}, which says which temperatures are best")


def _bounds(best: list[float] | None) -> Bounds:
    return (1.0, 1.0) if best is None else (float(best[0]), float(best[1]))
