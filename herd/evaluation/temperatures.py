"""The temperatures for evaluating a run: those of the best tile of its bandit (DiCE, arXiv:2106.00707)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.evaluation.errors import EvaluationError
from herd.files import read_json
from herd.run.paths import agent_number, whole_run

if TYPE_CHECKING:
    from pathlib import Path

    from herd.acting.temperatures import Bounds
    from herd.evaluation.trained_run import TrainedRun

STATES = ("bandit/state.json", "bandit/state.previous.json")
"""Files of the bandit's state, newest first."""


def best_temperatures(run_dir: Path, run: TrainedRun) -> tuple[Bounds, ...] | None:
    """Return the ranges of 1/tau by task, from the newest readable state of the bandit; None if games are played with tau = 1.

    A task without any return so far is played with tau = 1.

    Raises:
        EvaluationError: the run uses temperatures, but no state can be read.

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
    raise EvaluationError(f"{run_dir} contains no readable {STATES[0]}, which holds the best temperatures")


def _bounds(best: list[float] | None) -> Bounds:
    return (1.0, 1.0) if best is None else (float(best[0]), float(best[1]))
