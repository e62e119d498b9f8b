"""``herd.load_policy``: a run's policy, to act with."""

from __future__ import annotations

from pathlib import Path

from herd.api.errors import RunError
from herd.api.runs import Run, locate
from herd.evaluation.errors import EvaluationError
from herd.evaluation.policy import TrainedPolicy
from herd.evaluation.temperatures import best_temperatures
from herd.evaluation.trained_run import load_trained_run


def load_policy(
    run: Run | Path | str,
    *,
    checkpoint: Path | str | None = None,
    task: str | None = None,
    num_environments: int | None = None,
    greedy: bool = False,
    seed: int = 0,
) -> TrainedPolicy:
    """Open the policy of a run, of one agent of a run, or of one checkpoint.

    Args:
        run: a `Run`, its directory, a checkpoint's folder in it, or the name of a run in ``runs/``.
        checkpoint: folder of the checkpoint; None: the newest whole one.
        task: one of the run's, which is then played; None: its first.
        num_environments: observations are of so many environments, with a leading axis; None: of one, without.
        greedy: take the most probable action instead of sampling.
        seed: of the sampling.

    Raises:
        RunError: no such run or task, no checkpoint, or one of another network.

    """
    found, named = (run, None) if isinstance(run, Run) else locate(run)
    if len(agents := found.agents) > 1:
        raise RunError(f"{found.directory}: this run has {len(agents)} agents; name one of them: {agents[0].directory}")
    try:
        trained = load_trained_run(found.directory, named if checkpoint is None else Path(checkpoint))
        names = trained.spec.task_names
        if task is not None and task not in names:
            raise RunError(f"{found.directory} plays {', '.join(names)}, not {task}")
        return TrainedPolicy(
            trained,
            0 if task is None else names.index(task),
            num_environments=num_environments,
            greedy=greedy,
            seed=seed,
            ranges=best_temperatures(found.directory, trained),
        )
    except (EvaluationError, ValueError) as error:  # UnknownTaskError is one
        raise RunError(str(error)) from error
