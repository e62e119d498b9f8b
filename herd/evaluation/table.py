"""Prints an evaluation as a table with the protocol below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from herd.components.suites import suite_named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

    from herd.evaluation.intervals import Interval
    from herd.evaluation.report import Estimate, EvaluationReport, TaskResult

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
