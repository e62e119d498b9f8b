"""Prints the results of a run, where they are, and what its optional parts did, and draws its curve."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from herd.files import FileError, read_record
from herd.protocols.population.journal import Decided, Done, Lineages, journal_file, read_journal
from herd.run.journals import best_inverse_temperatures, mapping_in, newest_point, number_in, read_evaluations, read_report
from herd.run.paths import CHECKPOINTS, CURVE, LEARNING, REPORT, agent_directories
from herd.view.status import read_status
from herd.view.terminal import clock, count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

_MAX_TASKS = 8
"""Largest number of tasks that are listed one by one; for more, only the scores over all tasks are."""
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
    """Print warnings, each agent's figures and the paths of its report and newest checkpoint, the pictures, and what the parts did."""
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
    for part in parts_of(run_dir):
        rows += [(part.title, f"{name}: {value}" if name else value) for name, value in part.rows]
        if part.plot:
            rows.append((part.title, f"picture: herd plot {part.plot} {run_dir}"))
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
    rows += [("progress", progress_line(progress, name if len(tasks) > 1 else None)) for name, progress in moved[:_MAX_TASKS]]
    return rows


def progress_line(progress: Mapping[str, float], name: str | None = None) -> str:
    """Describe the change of a task's return from a report's ``progress`` in one line, and name random play's if that is known."""
    games = int(progress["games"])
    notes = [f"first and last {games:,} games"] if games > 1 else []
    if (random := progress.get("random")) is not None:
        notes.append(f"random play: {random:,.2f}")
    line = f"return {progress['mean_first']:,.2f} -> {progress['mean_last']:,.2f}" + (f" ({'; '.join(notes)})" if notes else "")
    return line if name is None else f"{name}: {line}"


class Part(NamedTuple):
    """What an optional part of a run did: bandit, population, replay or evaluations."""

    title: str
    rows: tuple[tuple[str, str], ...]
    plot: str = ""
    """Option of ``herd plot`` that draws it; empty if nothing does."""


def parts_of(run_dir: Path) -> list[Part]:
    """Return the optional parts that a run had, as far as their files can be read."""
    found = []
    for read in (_bandit, _population, _replay, _evaluations):
        try:
            part = read(run_dir)
        except FileError as error:
            part = Part("unreadable", (("problem", str(error)),))
        if part is not None:
            found.append(part)
    return found


def _bandit(run_dir: Path) -> Part | None:
    best = {key: bounds for key, bounds in best_inverse_temperatures(run_dir).items() if bounds is not None}
    if not best:
        return None
    several = len({agent for agent, _ in best}) > 1
    rows = [
        (f"agent {agent} {task}" if several else task, f"best 1/tau {low:.3g} to {high:.3g}")
        for (agent, task), (low, high) in sorted(best.items())
    ]
    return Part("temperatures", _shortened(rows), "--bandit")


def _population(run_dir: Path) -> Part | None:
    events = list(read_journal(journal_file(run_dir)))
    if not events:
        return None
    ordered = {event.number: event for event in events if isinstance(event, Decided)}
    done = [order for event in events if isinstance(event, Done) and (order := ordered.get(event.number)) is not None]
    members = {agent.name: mapping_in(newest_point(agent), "population") for agent in agent_directories(run_dir)}
    fitness = {name: value for name, member in members.items() if (value := number_in(member, "fitness")) is not None}
    rows = [
        ("copies", f"{len(Lineages(events).copies):,}"),
        ("changes of settings", f"{sum(order.before != order.settings for order in done):,}"),
    ]
    if fitness:
        best = max(fitness, key=fitness.__getitem__)
        settings = ", ".join(f"{key} {_text(value)}" for key, value in mapping_in(members[best], "settings").items())
        rows.append(("best member", f"{best}, fitness {fitness[best]:,.2f}{f'; {settings}' if settings else ''}"))
    return Part("population", tuple(rows), "--population")


def _replay(run_dir: Path) -> Part | None:
    agents = agent_directories(run_dir)
    rows = []
    for agent in agents:
        replay = mapping_in(read_report(agent), "replay")
        which = f"agent {agent.name} " if len(agents) > 1 else ""
        rows += [(f"{which}{name.replace('_', ' ')}", _text(value)) for name, value in replay.items() if not isinstance(value, dict | list)]
    return Part("replay", _shortened(rows)) if rows else None


def _evaluations(run_dir: Path) -> Part | None:
    rows = []
    agents = agent_directories(run_dir)
    for agent in agents:
        for point in read_evaluations(agent)[-1:]:
            which = f"agent {agent.name} " if len(agents) > 1 else ""
            for task, mean in point.means.items():
                error = point.standard_errors.get(task)
                spread = "" if error is None else f" +- {error:,.2f}"
                rows.append((f"{which}{task}", f"{mean:,.2f}{spread} (after {point.learner_updates:,} updates)"))
    return Part("evaluation", _shortened(rows)) if rows else None


def _shortened(rows: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    more = [("", f"and {len(rows) - _MAX_TASKS} more")] if len(rows) > _MAX_TASKS else []
    return (*rows[:_MAX_TASKS], *more)


def _text(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
