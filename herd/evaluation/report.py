"""The report of an evaluation: scores with their uncertainty, and the protocol."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from rich import box
from rich.table import Table

from herd.components.suites import suite_named
from herd.components.suites.scores import aggregates, human_normalised, record_normalised
from herd.evaluation.intervals import Interval, percentiles, resampled_run_scores, standard_error
from herd.files import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from rich.console import Console

    FloatArray = NDArray[np.float64]


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
    policy: Literal["sampled", "greedy", "of training"]
    env: Mapping[str, Any]
    """Settings of the suite as played, from the first run."""
    differs_from_training: tuple[str, ...]
    """Settings of ``env`` that this evaluation overrode."""
    differs_from_protocol: tuple[str, ...]
    """Differences from the paper."""
    episodes_per_task: int | None = None
    """Number of games of each task in each run; None, as the following three, if the scores are the returns of training."""
    environments: int | None = None
    seed: int | None = None
    """Random seed of the games, the same for each run."""
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


AGGREGATES = {
    "mean": "mean",
    "median": "median",
    "mean_capped": "mean, each task at most 100 %",
    "interquartile_mean": "interquartile mean",
    "saber_mean": "SABER, mean",
    "saber_median": "SABER, median",
}
"""Headings of `herd.components.suites.scores.aggregates`, in the printed order."""


def print_report(report: EvaluationReport, console: Console) -> None:
    """Print one row per task, the aggregates with their intervals, and how they were measured."""
    tasks = report.tasks
    several = len(report.runs) > 1
    with_human = any(task.human_normalised is not None for task in tasks)
    with_record = any(task.record_normalised is not None for task in tasks)
    with_temperatures = any(task.inverse_temperatures is not None for task in tasks)
    columns: dict[str, tuple[bool, Callable[[TaskResult], str]]] = {
        "runs": (several, lambda task: str(task.runs)),
        "games": (True, lambda task: f"{task.episodes:,}"),
        "mean": (True, lambda task: _number(task.mean)),
        "± s.e.": (True, lambda task: _number(task.standard_error)),
        # With the columns of several tasks it does not fit into 80 characters; the picture and the files have it.
        "95 % interval": (len(tasks) == 1, lambda task: _interval(task.mean_interval_95)),
        "of human": (with_human, lambda task: _percent(task.human_normalised)),
        "of record": (with_record, lambda task: _percent(task.record_normalised)),
        "1/tau": (with_temperatures, _temperatures),
    }
    shown = {heading: cell for heading, (is_shown, cell) in columns.items() if is_shown}
    table = _table(_title(report), "task", list(shown))
    for task in tasks:
        table.add_row(task.task_name, *(cell(task) for cell in shown.values()))
    console.print(table)
    if report.summary is not None:
        console.print(_summary_table(report.summary, len(tasks)))
    for line in protocol_lines(report):
        console.print(line, style="dim", highlight=False)


def protocol_lines(report: EvaluationReport) -> list[str]:
    """Return lines about how the scores were measured, and about differences from the protocol."""
    protocol = report.protocol
    parts = [f"{protocol.policy} policy" + (f" ({protocol.inference_precision})" if protocol.inference_precision else "")]
    if protocol.environments is not None:
        parts += [f"seed {protocol.seed}", f"{protocol.environments} environments, games assigned in advance"]
    parts += suite_named(protocol.suite).protocol(protocol.env)
    if any(task.inverse_temperatures is not None for task in report.tasks):
        parts.append("1/tau drawn from the best-valued tile")
    if truncated := sum(task.truncated_episodes or 0 for task in report.tasks):
        parts.append(f"{truncated} games reached a limit")
    if protocol.environments is not None:
        changed = protocol.differs_from_training
        parts.append(f"differs from training in {', '.join(changed)}" if changed else "environments as in training")
    if any(task.mean_interval_95 is not None for task in report.tasks):
        drawn = "runs and their games" if any(task.runs > 1 for task in report.tasks) else "games, without the variation between seeds"
        parts.append(f"intervals resample {drawn}")
    lines = [] if protocol.name is None else [f"{protocol.name}: {protocol.says}"]
    if protocol.differs_from_protocol:
        lines.append(f"not as in the paper: {'; '.join(protocol.differs_from_protocol)}")
    return [*lines, "; ".join(parts)]


def _title(report: EvaluationReport) -> str:
    if len(report.runs) > 1:
        return f"{len(report.runs)} runs"
    (run,) = report.runs
    frames = "" if run.env_frames is None else f", {run.env_frames:,} env frames"
    return f"{run.run} after {run.learner_updates:,} updates{frames}"


def _table(title: str, first: str, headings: Sequence[str]) -> Table:
    """Make a table without borders, so that more fits into 80 characters."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column(first, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _summary_table(summary: Mapping[str, Estimate], num_tasks: int) -> Table:
    table = _table(f"human-normalised, {num_tasks} tasks", "statistic", ("score", "95 % interval"))
    for name, text in AGGREGATES.items():
        if name in summary:
            estimate = summary[name]
            interval = "-" if estimate.interval_95 is None else " to ".join(_percent(end) for end in estimate.interval_95)
            table.add_row(text, _percent(estimate.score), interval)
    return table


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.{2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0}f}"


def _interval(interval: Interval | None) -> str:
    return "-" if interval is None else f"{_number(interval[0])} to {_number(interval[1])}"


def _temperatures(task: TaskResult) -> str:
    """Return a short text, so that it fits next to the other columns."""
    return "-" if task.inverse_temperatures is None else "-".join(f"{bound:.3g}" for bound in task.inverse_temperatures)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:,.1f} %"
