"""What an evaluation says: scores with their uncertainty, and the protocol without which they mean nothing."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from herd.envs.make import suite_named
from herd.envs.scores import capped_human_normalised, human_normalised, interquartile_mean
from herd.evaluation.intervals import Interval, mean_interval, standard_error, stratified_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from rich.console import Console
    from rich.table import Table

    from herd.evaluation.play import Game

    FloatArray = NDArray[np.float64]

EPISODE_SELECTION = "games assigned to environments in advance: the first ones of each, however long they take"


@dataclass(frozen=True, slots=True)
class Protocol:
    """How the games were played."""

    suite: str
    episodes_per_task: int
    episode_selection: str
    environments: int
    seed: int
    policy: Literal["sampled", "greedy"]
    inference_precision: str
    env: Mapping[str, Any]
    """The suite's settings as played."""
    full_games: bool
    """A score covers all lives of a game."""
    differs_from_training: tuple[str, ...]
    """Settings of ``env`` that this evaluation overrode."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One task's games. Returns are raw and undiscounted."""

    task_name: str
    episodes: int
    mean: float
    standard_error: float | None
    """Of the mean; None after one game."""
    mean_interval_95: Interval
    """Bootstrap over games."""
    median: float
    lowest: float
    highest: float
    mean_env_frames: float
    """Per game."""
    truncated_episodes: int
    """Games that ran into max_episode_frames."""
    human_normalised: float | None
    """Of the mean: 0 random, 1 human; None where no reference scores exist."""
    inverse_temperatures: tuple[float, float] | None
    """DiCE: lowest and highest 1/tau that a game could draw, of the best-valued tile; None where tau was 1 throughout."""
    episode_returns: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """Human-normalised scores over several tasks, each with its 95 % bootstrap interval, games resampled within tasks."""

    num_tasks: int
    mean: float
    mean_interval_95: Interval
    median: float
    median_interval_95: Interval
    interquartile_mean: float
    interquartile_mean_interval_95: Interval
    mean_capped: float
    """Each task counts at most 1."""
    mean_capped_interval_95: Interval


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """RUN/evaluation-<updates>.json."""

    run: str
    checkpoint: str
    learner_updates: int
    env_frames: int | None
    """Of training at the checkpoint."""
    protocol: Protocol
    tasks: tuple[TaskResult, ...]
    summary: Summary | None
    """None for a single task, and where a task has no reference scores."""

    def write(self, path: Path) -> None:
        """As JSON; a file of this name is replaced in one step."""
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(json.dumps(asdict(self), indent=2, allow_nan=False) + "\n", encoding="utf-8")
        temporary.replace(path)


def task_result(
    task_name: str,
    games: Sequence[Game],
    *,
    suite: str,
    action_repeat: int,
    seed: int,
    inverse_temperatures: tuple[float, float] | None = None,
) -> TaskResult:
    """Sum up the games of one task."""
    returns = np.array([game.episode_return for game in games])
    error = standard_error(returns)
    mean = float(returns.mean())
    reference = suite_named(suite).reference_scores().get(task_name)
    return TaskResult(
        task_name=task_name,
        episodes=len(games),
        mean=mean,
        standard_error=None if math.isnan(error) else error,
        mean_interval_95=mean_interval(returns, seed=seed),
        median=float(np.median(returns)),
        lowest=float(returns.min()),
        highest=float(returns.max()),
        mean_env_frames=float(np.mean([game.agent_steps for game in games])) * action_repeat,
        truncated_episodes=sum(game.truncated for game in games),
        human_normalised=None if reference is None else float(human_normalised(mean, reference)),
        inverse_temperatures=inverse_temperatures,
        episode_returns=tuple(returns.tolist()),
    )


def summarise_tasks(tasks: Sequence[TaskResult], *, suite: str, seed: int) -> Summary | None:
    """Several tasks' human-normalised scores as one; see `Summary`."""
    if len(tasks) < 2 or any(task.human_normalised is None for task in tasks):
        return None
    references = [suite_named(suite).reference_scores()[task.task_name] for task in tasks]
    returns = [np.array(task.episode_returns) for task in tasks]

    def scored(statistic: Callable[[FloatArray], FloatArray], *, capped: bool = False) -> tuple[float, Interval]:
        normalise = capped_human_normalised if capped else human_normalised

        def of_means(means: FloatArray) -> FloatArray:  # [R, K] -> [R]
            return statistic(np.stack([normalise(means[:, k], reference) for k, reference in enumerate(references)], axis=1))

        point = of_means(np.array([[games.mean() for games in returns]]))
        return float(point[0]), stratified_interval(returns, of_means, seed=seed)

    mean, mean_range = scored(lambda scores: scores.mean(axis=1))
    median, median_range = scored(lambda scores: np.median(scores, axis=1))
    middle, middle_range = scored(lambda scores: np.apply_along_axis(interquartile_mean, 1, scores))
    capped, capped_range = scored(lambda scores: scores.mean(axis=1), capped=True)
    return Summary(
        num_tasks=len(tasks),
        mean=mean,
        mean_interval_95=mean_range,
        median=median,
        median_interval_95=median_range,
        interquartile_mean=middle,
        interquartile_mean_interval_95=middle_range,
        mean_capped=capped,
        mean_capped_interval_95=capped_range,
    )


def print_report(report: EvaluationReport, console: Console | None = None) -> None:
    """Print a table for a terminal, the protocol below it."""
    from rich.console import Console  # noqa: PLC0415 (a report in a pod is only JSON)

    console = console if console is not None else Console()
    frames = "" if report.env_frames is None else f", {report.env_frames:,} env frames"
    with_human = any(task.human_normalised is not None for task in report.tasks)
    with_temperatures = any(task.inverse_temperatures is not None for task in report.tasks)
    headings = ("games", "mean", "± s.e.", "95 % interval", "median", *(["of human"] * with_human), *(["1/tau"] * with_temperatures))
    table = _table(f"{report.run} after {report.learner_updates:,} updates{frames}", "task", headings)
    for task in report.tasks:
        scores = (_number(task.mean), _number(task.standard_error), _interval(task.mean_interval_95), _number(task.median))
        others = [_percent(task.human_normalised)] * with_human + [_temperatures(task)] * with_temperatures
        table.add_row(task.task_name, str(task.episodes), *scores, *others)
    console.print(table)
    if report.summary is not None:
        console.print(_summary_table(report.summary))
    console.print(_protocol_line(report), style="dim", highlight=False)


def _table(title: str, first: str, headings: Sequence[str]) -> Table:
    """Without frames, so that seven columns fit into 80 characters."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column(first, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _summary_table(summary: Summary) -> Table:
    table = _table(f"human-normalised, {summary.num_tasks} tasks", "statistic", ("score", "95 % interval"))
    for name, score, (low, high) in (
        ("mean", summary.mean, summary.mean_interval_95),
        ("median", summary.median, summary.median_interval_95),
        ("interquartile mean", summary.interquartile_mean, summary.interquartile_mean_interval_95),
        ("mean, each task at most 100 %", summary.mean_capped, summary.mean_capped_interval_95),
    ):
        table.add_row(name, _percent(score), f"{_percent(low)} to {_percent(high)}")
    return table


def _protocol_line(report: EvaluationReport) -> str:
    protocol = report.protocol
    parts = [
        f"{protocol.policy} policy ({protocol.inference_precision})",
        f"seed {protocol.seed}",
        f"{protocol.environments} environments, games assigned in advance",
    ]
    parts += suite_named(protocol.suite).protocol(protocol.env)
    if any(task.inverse_temperatures is not None for task in report.tasks):
        parts.append("1/tau drawn from the best-valued tile")
    truncated = sum(task.truncated_episodes for task in report.tasks)
    if truncated:
        parts.append(f"{truncated} games ran into the cap")
    changed = protocol.differs_from_training
    parts.append(f"differs from training in {', '.join(changed)}" if changed else "environments as in training")
    return "; ".join(parts)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.{2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0}f}"


def _interval(interval: Interval) -> str:
    return f"{_number(interval[0])} to {_number(interval[1])}"


def _temperatures(task: TaskResult) -> str:
    """Short, so that it fits beside seven columns."""
    return "-" if task.inverse_temperatures is None else "-".join(f"{bound:.3g}" for bound in task.inverse_temperatures)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:,.1f} %"
