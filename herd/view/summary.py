"""Prints the results of a run and where they are, and draws its curve."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from herd.files import FileError, read_record
from herd.run.journals import read_evaluations
from herd.run.paths import CHECKPOINTS, CURVE, LEARNING, REPORT, agent_directories
from herd.view.status import read_status
from herd.view.terminal import clock, count

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.console import Console

_MAX_TASKS = 8
"""Largest number of tasks whose progress or evaluation is listed."""
_NAME_WIDTH = 16
"""Fits the longest names of games."""


def draw_curve(run_dir: Path) -> str | None:
    """Draw RUN/curve.png and, if there was an update, RUN/learning.png; returns why there is no curve, or None."""
    try:
        from herd.components.suites import reference_scores  # noqa: PLC0415  loads numpy
        from herd.view.plots.curves import plot_runs  # noqa: PLC0415  matplotlib is optional and takes a second to load
    except ImportError as error:
        return f"needs {error.name}: pip install 'herd-rl[plot]'"
    try:
        plot_runs(agent_directories(run_dir), run_dir / CURVE, reference_scores=reference_scores)
    except ImportError as error:
        return f"needs {error.name}: pip install 'herd-rl[plot]'"
    except FileError as error:
        return str(error)
    with suppress(FileError):
        plot_runs(agent_directories(run_dir), run_dir / LEARNING, panels="learning")
    return None


def print_summary(console: Console, run_dir: Path, curve_problem: str | None) -> None:
    """Print warnings, each agent's figures, the paths of its report and newest checkpoint, the pictures, and the newest evaluations."""
    status = read_status(run_dir)
    rows: list[tuple[str, str]] = [("warning", line) for line in status.warnings]
    has_result = False
    for agent in status.agents or (status,):
        if status.agents:
            rows.append((f"agent {agent.directory.name}", ""))
        report_file = agent.directory / REPORT
        written, figures = str(report_file), []
        try:
            figures = read_record(report_file, "a report", _figures)
        except FileNotFoundError:
            written = "none: the learner did not reach its end, or could not write it"
        except FileError as error:
            written = str(error)
        if not (report_file.exists() or agent.now or agent.checkpoint):
            rows.append(("result", "none: the run ended before its first update was saved, so it has no report, curve or checkpoint"))
            continue
        has_result = True
        checkpoint = "none" if agent.checkpoint is None else str(agent.directory / CHECKPOINTS / agent.checkpoint)
        rows += [*figures, ("report", written), ("checkpoint", agent.checkpoint_problem or checkpoint)]
    if has_result:
        rows.append(("curve", str(run_dir / CURVE) if curve_problem is None else f"none: {curve_problem}"))
    if (run_dir / LEARNING).is_file():
        rows.append(("losses", str(run_dir / LEARNING)))
    rows += [("evaluation", line) for line in _evaluations(run_dir)]
    width = max(_NAME_WIDTH, *(len(name) for name, _ in rows))
    for name, value in rows:
        # Lines instead of a table, because a wrapped path could not be copied.
        console.print(f"{name:<{width}}  {value}".rstrip(), markup=False, highlight=False, soft_wrap=True)


def _figures(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if not report:
        return rows
    rows.append(("env frames", f"{count(report.get('env_frames', 0))} in {clock(report.get('wall_seconds', 0.0))}"))
    rows.append(("frames/s", f"{report.get('frames_per_second', 0.0):,.0f} ({report.get('learner_updates', 0):,} updates)"))
    if (reason := report.get("stopped")) is not None:
        rows.append(("stopped", str(reason)))
    lag = report.get("policy_lag", {}).get("mean")
    if lag is not None:
        rows.append(("policy lag", f"{lag:.1f} updates"))
    if (spread := report.get("task_frames_spread")) is not None:
        rows.append(("tasks", f"{len(report['tasks'])}, the most trained has {spread:.1%} of the mean more frames than the least"))
    if (capped := report.get("human_normalised_mean_capped")) is not None:
        rows.append(("human-normalised", f"{capped:.1%} (mean over tasks, each at most 100%)"))
    for name, task in report.get("tasks", {}).items():
        score = task.get("episode_return", {})
        mean = score.get("mean_last_100")
        games = score.get("episodes", 0)
        averaged = f"the last 100 of {games:,} games" if games > 100 else f"all {games} games"
        rows.append((name, "no game ended" if mean is None else f"{mean:,.2f} (mean return of {averaged})"))
    tasks = report.get("tasks", {})
    moved = [(name, task["progress"]) for name, task in tasks.items() if task.get("progress")]
    rows += [("progress", f"{name}: " * (len(tasks) > 1) + _progress_line(progress)) for name, progress in moved[:_MAX_TASKS]]
    return rows


def _progress_line(progress: Mapping[str, float]) -> str:
    """Describe the change of a task's return from a report's ``progress`` in one line, and name random play's if that is known."""
    games = int(progress["games"])
    notes = [f"first and last {games:,} games"] if games > 1 else []
    if (random := progress.get("random")) is not None:
        notes.append(f"random play: {random:,.2f}")
    return f"return {progress['mean_first']:,.2f} -> {progress['mean_last']:,.2f}" + (f" ({'; '.join(notes)})" if notes else "")


def _evaluations(run_dir: Path) -> list[str]:
    """Return a line for each task of the newest evaluation of each agent."""
    lines = []
    agents = agent_directories(run_dir)
    for agent in agents:
        try:
            points = read_evaluations(agent)
        except FileError as error:
            lines.append(str(error))
            continue
        which = f"agent {agent.name} " if len(agents) > 1 else ""
        for point in points[-1:]:
            for task, mean in point.means.items():
                deviation = point.standard_errors.get(task)
                spread = "" if deviation is None else f" +- {deviation:,.2f}"
                lines.append(f"{which}{task}: {mean:,.2f}{spread} (after {point.learner_updates:,} updates)")
    more = [f"and {len(lines) - _MAX_TASKS} more"] if len(lines) > _MAX_TASKS else []
    return lines[:_MAX_TASKS] + more
