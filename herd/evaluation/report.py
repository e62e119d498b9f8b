"""The report of an evaluation: scores with their uncertainty, and the protocol."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from herd.components.suites import suite_named
from herd.components.suites.scores import aggregates, human_normalised, record_normalised
from herd.evaluation.intervals import Interval, percentiles, resampled_run_scores, standard_error
from herd.files import replace_file

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
    """Returns of its games, [N]; only their mean, [1], if the single games are not known."""
    episodes: int
    """Number of games."""
    mean_env_frames: float | None = None
    """Per game."""
    truncated_episodes: int | None = None
    """Games that ran into a limit."""
    inverse_temperatures: tuple[float, float] | None = None
    """DiCE: lowest and highest 1/tau of the best tile, from which games draw; None if tau is always 1."""


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A run with scores."""

    run: str
    directory: str
    seed: int
    """Random seed of training."""
    checkpoint: str | None
    """None if the scores are the returns of training."""
    learner_updates: int
    env_frames: int | None
    """Env frames of training over all tasks, at the checkpoint or at the point where the scores were taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """How the games were played."""

    name: str | None
    """Name of the protocol; None: as in training."""
    says: str | None
    """The protocol in one line."""
    suite: str
    episode_selection: str
    policy: Literal["sampled", "greedy", "of training"]
    env: Mapping[str, Any]
    """Settings of the suite as played, from the first run."""
    full_games: bool
    """Whether a score covers all lives of a game."""
    differs_from_training: tuple[str, ...]
    """Settings of ``env`` that this evaluation overrode."""
    differs_from_protocol: tuple[str, ...]
    """Differences from the paper."""
    episodes_per_task: int | None = None
    """Seed of each run; None if the scores are the returns of training."""
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
    """The score: mean over runs of their means over games."""
    standard_error: float | None
    """Standard error of the mean: over runs if there are several, otherwise over games; None for a single game."""
    mean_interval_95: Interval | None
    """Bootstrap interval over runs and games within runs; None if neither is known."""
    median: float
    lowest: float
    highest: float
    mean_env_frames: float | None
    """Per game."""
    truncated_episodes: int | None
    """Games that ran into a limit."""
    human_normalised: float | None
    """Human-normalised mean: 0 random, 1 human; None without reference scores."""
    human_normalised_interval_95: Interval | None
    record_normalised: float | None
    """Mean normalised as in SABER: 0 random, 1 the human world record, at most 2."""
    inverse_temperatures: tuple[float, float] | None
    """As in `TaskScore`, from the first run."""
    run_means: tuple[float, ...]
    episode_returns: tuple[tuple[float, ...], ...]
    """Of each run."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic over several tasks, in units of the human score or of the record."""

    score: float
    interval_95: Interval | None
    """Bootstrap interval: runs are resampled within tasks, and games within runs."""


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """One table of scores."""

    runs: tuple[ScoredRun, ...]
    protocol: Procedure
    tasks: tuple[TaskResult, ...]
    summary: Mapping[str, Estimate] | None
    """By the names of `herd.components.suites.scores.aggregates`; None for a single task, or if a task has no reference scores."""

    def write_json(self, path: Path) -> None:
        """Write the whole report; an existing file is replaced atomically. OSError if it cannot be written."""
        replace_file(path, json.dumps(asdict(self), indent=2, allow_nan=False) + "\n")

    def write_csv(self, path: Path) -> None:
        """Write one row per task; see ``write_json``."""
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
    """Summarise the scores of all runs, by task."""
    seed = procedure.seed or 0
    tasks = tuple(task_result(name, of_runs, suite=procedure.suite, seed=seed) for name, of_runs in scores.items())
    return EvaluationReport(tuple(runs), procedure, tasks, summarise_tasks(tasks, suite=procedure.suite, seed=seed))


def task_result(task_name: str, runs: Sequence[TaskScore], *, suite: str, seed: int) -> TaskResult:
    """Summarise the runs of one task."""
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
    """Return the aggregates of several tasks with equally many runs, by name; None if they have no common measure."""
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
