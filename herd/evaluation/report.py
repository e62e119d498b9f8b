"""What an evaluation says: scores with their uncertainty, and the protocol without which they mean nothing."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from herd.envs.make import suite_named
from herd.envs.scores import aggregates, human_normalised, record_normalised
from herd.evaluation.intervals import Interval, percentiles, resampled_run_scores, standard_error
from herd.service.files import replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

EPISODE_SELECTION = "games assigned to environments in advance: the first ones of each, however long they take"


@dataclass(frozen=True, slots=True)
class TaskScore:
    """One task of one run."""

    returns: FloatArray
    """[N] of its games; [1], their mean, where the games themselves are not known."""
    episodes: int
    """Games."""
    mean_env_frames: float | None = None
    """Per game."""
    truncated_episodes: int | None = None
    """Games that ran into a limit."""
    inverse_temperatures: tuple[float, float] | None = None
    """DiCE: lowest and highest 1/tau that a game could draw, of the best-valued tile; None where tau was 1 throughout."""


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """Whose scores these are."""

    run: str
    directory: str
    seed: int
    """Of training."""
    checkpoint: str | None
    """None where the scores are of training itself."""
    learner_updates: int
    env_frames: int | None
    """Of training, over all tasks, at the checkpoint or where the scores were taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """How the games were played."""

    name: str | None
    """Of the protocol; None: as in training."""
    says: str | None
    """The protocol in one line."""
    suite: str
    episode_selection: str
    policy: Literal["sampled", "greedy", "of training"]
    env: Mapping[str, Any]
    """The suite's settings as played, of the first run."""
    full_games: bool
    """A score covers all lives of a game."""
    differs_from_training: tuple[str, ...]
    """Settings of ``env`` that this evaluation overrode."""
    differs_from_protocol: tuple[str, ...]
    """What is not as in the paper."""
    episodes_per_task: int | None = None
    """Of each run; None where they are of training."""
    environments: int | None = None
    seed: int | None = None
    inference_precision: str | None = None


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One task, over all runs that play it. Returns are raw and undiscounted."""

    task_name: str
    runs: int
    episodes: int
    """Over all runs."""
    mean: float
    """Over runs, of their means over games: the score."""
    standard_error: float | None
    """Of the mean: over runs where there are several, else over games; None after one."""
    mean_interval_95: Interval | None
    """Bootstrap over runs, and games within them; None where neither is known."""
    median: float
    lowest: float
    highest: float
    mean_env_frames: float | None
    """Per game."""
    truncated_episodes: int | None
    """Games that ran into a limit."""
    human_normalised: float | None
    """Of the mean: 0 random, 1 human; None where no reference scores exist."""
    human_normalised_interval_95: Interval | None
    record_normalised: float | None
    """SABER: 0 random, 1 the human world record, at most 2."""
    inverse_temperatures: tuple[float, float] | None
    """As `TaskScore` has it; of the first run."""
    run_means: tuple[float, ...]
    episode_returns: tuple[tuple[float, ...], ...]
    """Of each run."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number over several tasks, in units of the human (or of the record)."""

    score: float
    interval_95: Interval | None
    """Bootstrap: runs resampled within tasks, games within runs."""


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """One table of scores."""

    runs: tuple[ScoredRun, ...]
    protocol: Procedure
    tasks: tuple[TaskResult, ...]
    summary: Mapping[str, Estimate] | None
    """By the names of `herd.envs.scores.aggregates`; None for a single task, and where a task has no reference scores."""

    def write_json(self, path: Path) -> None:
        """Everything; a file of this name is replaced in one step. OSError if it cannot be written."""
        replace_file(path, json.dumps(asdict(self), indent=2, allow_nan=False) + "\n")

    def write_csv(self, path: Path) -> None:
        """One row a task; as ``write_json``."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        columns = ("runs", "episodes", "mean", "standard_error", "median", "lowest", "highest", "human_normalised", "record_normalised")
        writer.writerow(["task", *columns, "interval_low", "interval_high"])
        for task in self.tasks:
            interval = task.mean_interval_95 or (None, None)
            values = [*(getattr(task, name) for name in columns), *interval]
            writer.writerow([task.task_name, *("" if value is None else f"{value:.10g}" for value in values)])
        replace_file(path, text.getvalue())


def make_report(runs: Sequence[ScoredRun], procedure: Procedure, scores: Mapping[str, Sequence[TaskScore]]) -> EvaluationReport:
    """Sum up the scores of every run, by task."""
    seed = procedure.seed or 0
    tasks = tuple(task_result(name, of_runs, suite=procedure.suite, seed=seed) for name, of_runs in scores.items())
    return EvaluationReport(tuple(runs), procedure, tasks, summarise_tasks(tasks, suite=procedure.suite, seed=seed))


def task_result(task_name: str, runs: Sequence[TaskScore], *, suite: str, seed: int) -> TaskResult:
    """Sum up one task's runs."""
    means = np.array([run.returns.mean() for run in runs])
    returns = np.concatenate([run.returns for run in runs])
    error = standard_error(means if len(runs) > 1 else returns)
    mean = float(means.mean())
    interval = None
    if len(returns) > 1:
        interval = percentiles(resampled_run_scores([[run.returns for run in runs]], seed=seed)[..., 0].mean(axis=1))
    reference = suite_named(suite).reference_scores().get(task_name)
    lengths = [run.mean_env_frames for run in runs if run.mean_env_frames is not None]
    truncated = [run.truncated_episodes for run in runs if run.truncated_episodes is not None]
    return TaskResult(
        task_name=task_name,
        runs=len(runs),
        episodes=sum(run.episodes for run in runs),
        mean=mean,
        standard_error=None if math.isnan(error) else error,
        mean_interval_95=interval,
        median=float(np.median(returns)),
        lowest=float(returns.min()),
        highest=float(returns.max()),
        mean_env_frames=float(np.mean(lengths)) if lengths else None,
        truncated_episodes=sum(truncated) if truncated else None,
        human_normalised=None if reference is None else float(human_normalised(mean, reference)),
        human_normalised_interval_95=None if reference is None or interval is None else _both(human_normalised(interval, reference)),
        record_normalised=None if reference is None or reference.world_record is None else float(record_normalised(mean, reference)),
        inverse_temperatures=runs[0].inverse_temperatures,
        run_means=tuple(means.tolist()),
        episode_returns=tuple(tuple(run.returns.tolist()) for run in runs),
    )


def summarise_tasks(tasks: Sequence[TaskResult], *, suite: str, seed: int) -> Mapping[str, Estimate] | None:
    """Several tasks with equally many runs as one number, by name; None where there is no common measure."""
    if len(tasks) < 2 or any(task.human_normalised is None for task in tasks):
        return None
    references = [suite_named(suite).reference_scores()[task.task_name] for task in tasks]
    scores = aggregates(np.array([task.run_means for task in tasks]).T, references)
    intervals: dict[str, Interval] = {}
    if any(task.mean_interval_95 is not None for task in tasks):
        games = [[np.array(of_run) for of_run in task.episode_returns] for task in tasks]
        intervals = {name: percentiles(values) for name, values in aggregates(resampled_run_scores(games, seed=seed), references).items()}
    return {name: Estimate(float(score), intervals.get(name)) for name, score in scores.items()}


def _both(values: FloatArray) -> Interval:
    return float(values[0]), float(values[1])
