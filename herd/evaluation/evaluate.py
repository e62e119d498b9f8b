"""Scores a run's checkpoint over whole games."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from herd.acting.policy import inference_precision
from herd.envs.make import make_environments
from herd.evaluation.play import play_episodes, start_play
from herd.evaluation.report import EPISODE_SELECTION, EvaluationReport, Protocol, summarise_tasks, task_result
from herd.evaluation.temperatures import best_temperatures
from herd.evaluation.trained_run import EvaluationError, load_trained_run
from herd.service.hardware import usable_cpus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# Games played at once where the caller does not say: enough for efficient inference, few enough that waiting for the last long
# games costs little.
_ENVIRONMENTS = 32


def evaluate_run(
    run_dir: Path,
    *,
    episodes: int = 200,
    overrides: Sequence[str] = (),
    checkpoint: Path | None = None,
    seed: int = 0,
    environments: int | None = None,
    greedy: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> EvaluationReport:
    """Play ``episodes`` whole games of every task, write RUN/evaluation-<updates>.json, and return what it says.

    By default everything that shapes a game is as in training, and actions are sampled as actors sample them, so that a checkpoint
    scores what its training showed. A lost life does not end a score; the recurrent core resets there where it did in training.
    The games of a DiCE run are each played under a temperature drawn from the tile that training valued most.
    Which games count is fixed in advance (see `play.assigned_episodes`). `report.print_report` prints the result.

    Args:
        run_dir: of ``herd train``: config.yaml and checkpoints/.
        episodes: per task. IMPALA's Atari protocol: 200.
        overrides: settings of ``env``, such as ``["--env.noop_max", "30"]``; see `load_trained_run`.
        checkpoint: directory of one checkpoint; None: the newest.
        seed: of games and of the policy's sampling.
        environments: games played at once over all tasks, a multiple of the number of tasks; None chooses.
        greedy: take the most probable action instead of sampling.
        on_progress: called with (games finished, games wanted).

    Raises:
        EvaluationError: one line: no such run, no checkpoint, one of another network, or an override out of range.

    """
    if episodes < 1:
        raise EvaluationError(f"episodes must be at least 1, not {episodes}")
    if seed < 0:
        raise EvaluationError(f"seed must be at least 0, not {seed}")
    run = load_trained_run(run_dir, checkpoint, overrides)
    env = run.settings.env
    count = _num_environments(environments, episodes=episodes, num_tasks=len(run.spec.task_names))
    # The most probable action is the same under every temperature.
    ranges = None if greedy else best_temperatures(run_dir, run)
    batch = make_environments(env, num_environments=count, first_slot=0, seed=seed, num_threads=min(usable_cpus(), count))
    try:
        play = start_play(run, batch, seed=seed, greedy=greedy, ranges=ranges)
        games = play_episodes(play, episodes, on_progress=on_progress)
    finally:
        batch.close()

    tasks = tuple(
        task_result(
            name,
            [game for game in games if game.task_id == task_id],
            suite=env.suite,
            action_repeat=run.spec.action_repeat,
            seed=seed,
            inverse_temperatures=None if ranges is None else ranges[task_id],
        )
        for task_id, name in enumerate(run.spec.task_names)
    )
    report = EvaluationReport(
        run=run.settings.name,
        checkpoint=run.checkpoint.name,
        learner_updates=run.learner_updates,
        env_frames=run.env_frames,
        protocol=Protocol(
            suite=env.suite,
            episodes_per_task=episodes,
            episode_selection=EPISODE_SELECTION,
            environments=count,
            seed=seed,
            policy="greedy" if greedy else "sampled",
            inference_precision=str(inference_precision(run.settings)).removeprefix("torch."),
            env=env.model_dump(mode="json"),
            full_games=True,
            differs_from_training=run.differs_from_training,
        ),
        tasks=tasks,
        summary=summarise_tasks(tasks, suite=env.suite, seed=seed),
    )
    path = run_dir / f"evaluation-{run.learner_updates}.json"
    try:
        report.write(path)
    except OSError as error:
        raise EvaluationError(f"cannot write {path}: {error.strerror}") from error
    return report


def _num_environments(requested: int | None, *, episodes: int, num_tasks: int) -> int:
    if requested is not None:
        if requested < 1 or requested % num_tasks:
            raise EvaluationError(f"environments must be a positive multiple of the {num_tasks} tasks, not {requested}")
        return min(requested, episodes * num_tasks)
    # The fewest with which each plays the same number of games, give or take one: none waits for a neighbour's extra game.
    per_task = min(episodes, max(1, _ENVIRONMENTS // num_tasks))
    return num_tasks * math.ceil(episodes / math.ceil(episodes / per_task))
