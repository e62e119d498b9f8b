"""``herd.load_policy``: loads the policy of a run, so that you can ask it for actions."""

from __future__ import annotations

from pathlib import Path

from herd.api.runs import Run, RunError, locate
from herd.evaluation.policy import TrainedPolicy
from herd.evaluation.protocols import EvaluationError
from herd.evaluation.trained_run import best_temperatures, load_trained_run


def load_policy(
    run: Run | Path | str,
    *,
    checkpoint: Path | str | None = None,
    task: str | None = None,
    num_environments: int | None = None,
    greedy: bool = False,
    seed: int = 0,
) -> TrainedPolicy:
    """Load the policy of a run, of an agent of a run, or of a checkpoint.

    Args:
        run: a `Run`, its directory, the folder of a checkpoint in it, or the name of a run in ``runs/``.
        checkpoint: folder of the checkpoint. None: the newest intact one.
        task: which of the run's tasks is played. None: its first.
        num_environments: number of environments, which is the leading axis of observations. None: one environment, and no such axis.
        greedy: take the most probable action instead of sampling.
        seed: random seed of the sampling.

    Raises:
        RunError: the run, task or checkpoint does not exist, or the checkpoint belongs to another network.

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
