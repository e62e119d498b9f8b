"""Shows the run: a live panel on a terminal, or a line at intervals if output goes to a file."""

from __future__ import annotations

import errno
import math
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from herd.config.errors import printable
from herd.files import FileError
from herd.run.journals import METRICS, stream_points
from herd.view.snapshot import AgentsSnapshotMaker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.console import ConsoleOptions, RenderableType

    from herd.config.run import StopSettings
    from herd.launch.plan import ChildPlan
    from herd.launch.readings import ChildState, Readings
    from herd.view.snapshot import ChildRow, RunSnapshot, TaskRow

_FILE_COLUMNS = 240
"""Width of tables in a file, so that no line is wrapped."""
PLAIN_INTERVAL_SECONDS = 10.0
"""Seconds between lines: 360 lines per hour."""
_MAX_ROWS = 12
"""Largest number of tasks and processes that are listed one by one; a terminal has at least 24 lines."""

_MAX_WARNINGS = 4
_STATE_STYLES = {"running": "green", "restarting": "bold red", "hanging": "bold red", "given up": "bold red"}
"""Colours of process states; other states are yellow. rich uses no colours if NO_COLOR is set or the output is not a terminal."""


class RunView:
    """What ``herd train`` shows: a snapshot of the run, made of what the supervisor reads, as a line at intervals."""

    def __init__(self, console: Console, snapshots: AgentsSnapshotMaker) -> None:
        self._console = console
        self._snapshots = snapshots
        self._shown_at = -math.inf

    def show(self, children: Sequence[ChildState], readings: Readings, elapsed_seconds: float, trained_seconds: float) -> None:
        """Show the present state."""
        self._draw(self._snapshots.make(readings, children, elapsed_seconds, trained_seconds))

    def note(self, message: str) -> None:
        """Print a separate line that is never wrapped; above the panel if there is one."""
        self._console.print(message, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Restore the terminal."""

    def _draw(self, snapshot: RunSnapshot) -> None:
        """Print a line if one is due."""
        now = time.monotonic()
        if now - self._shown_at >= PLAIN_INTERVAL_SECONDS:
            self._shown_at = now
            self.note(one_line(snapshot))


class LiveView(RunView):
    """As a panel that is redrawn at most twice a second."""

    def __init__(self, console: Console, snapshots: AgentsSnapshotMaker, title: str) -> None:
        super().__init__(console, snapshots)
        self._title = title
        self._live = Live(console=console, refresh_per_second=2, transient=False)
        self._live.start()

    def close(self) -> None:
        """Stop redrawing; the last picture stays on the terminal."""
        self._live.stop()

    def _draw(self, snapshot: RunSnapshot) -> None:
        self._live.update(panel(snapshot, self._title))


def make_view(console: Console, title: str, stop: StopSettings, plans: Sequence[ChildPlan], agent_directories: Sequence[Path]) -> RunView:
    """Return the view of a run, with the returns of its earlier sessions. ``agent_directories``: of each agent's learner."""
    agents = {plan.name: plan.agent for plan in plans if plan.agent is not None}
    snapshots = AgentsSnapshotMaker(stop, agents, [earlier_points(directory) for directory in agent_directories])
    return LiveView(console, snapshots, title) if console.is_terminal else RunView(console, snapshots)


def earlier_points(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the points of an agent's earlier sessions, as far as they can be read."""
    if (directory / METRICS).is_file():
        with suppress(FileError):
            yield from stream_points(directory)


class RunConsole(Console):
    """Shows no control characters of what it prints, and raises an exception when its reader has gone away."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield what rich would print; its own controls of the terminal are in separate segments."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Called by rich when the output is closed."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class TrainConsole(RunConsole):
    """Writes nothing more after its output has failed: a run continues if its terminal or pipe is closed, or its disk is full."""

    def __exit__(self, *error: object) -> None:
        """Write what was printed, unless the output has failed."""
        try:
            super().__exit__(*error)
        except OSError:
            self.quiet = True


def one_line(snapshot: RunSnapshot) -> str:
    """``00:30  461 k frames (24 %, 01:35 left)  15,432 frames/s  breakout 3.2  ...``."""
    parts = [clock(snapshot.elapsed_seconds), *([snapshot.phase] if snapshot.phase else [])]
    if snapshot.phase.startswith("starting") and not snapshot.env_frames:
        return "  ".join(parts)  # everything else is zero or unknown
    parts.append(f"{count(snapshot.env_frames)} frames{_progress_text(snapshot)}")
    parts.append(f"{number(snapshot.frames_per_second)} frames/s")
    if len(snapshot.tasks) > _MAX_ROWS:
        parts.append(_tasks_in_short(snapshot))
    else:
        parts += [f"{task.name} return {_return(task)}{_best(task)}" for task in snapshot.tasks]
    for agent_number, agent in enumerate(snapshot.agents[:_MAX_ROWS]):
        returns = ", ".join(f"{task.name} {_return(task)}" for task in agent.tasks[:_MAX_ROWS])
        parts.append(f"agent {agent_number}: {count(agent.env_frames)} frames, return {returns or '-'}")
    if snapshot.entropy is not None:
        parts.append(f"entropy {number(snapshot.entropy, 2)}")
    parts.append(f"lag {number(snapshot.policy_lag, 1)}")
    parts.append(f"queue {number(snapshot.queue_unrolls)}/{number(snapshot.queue_capacity)}")
    parts.append(f"learner starved {percent(snapshot.starved_share)}, actors blocked {percent(snapshot.blocked_share)}")
    restarts = sum(child.restarts for child in snapshot.children)
    if restarts:
        parts.append(f"restarts {restarts}")
    parts += snapshot.troubles[:_MAX_WARNINGS]
    parts += snapshot.warnings[:_MAX_WARNINGS]
    return "  ".join(parts)


def panel(snapshot: RunSnapshot, title: str) -> RenderableType:
    """Draw the live panel."""
    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right", no_wrap=True)
    done = snapshot.progress
    head.add_row(
        ProgressBar(total=1.0, completed=done or 0.0, pulse=done is None),
        Text(f"{clock(snapshot.elapsed_seconds)}{_progress_text(snapshot)}"),
    )
    return Panel(Group(head, *facts(snapshot), _process_table(snapshot.children)), title=title, border_style="dim")


def facts(snapshot: RunSnapshot) -> list[RenderableType]:
    """Draw the facts that every view shows: speed, bottleneck, returns by task."""
    numbers = Table.grid(padding=(0, 3))
    numbers.add_row("frames", "frames/s", "updates", "policy lag", "entropy", "queue", style="dim")
    numbers.add_row(
        count(snapshot.env_frames),
        Text(number(snapshot.frames_per_second), style="bold"),
        number(snapshot.learner_updates),
        number(snapshot.policy_lag, 1),
        number(snapshot.entropy, 2),
        f"{number(snapshot.queue_unrolls)}/{number(snapshot.queue_capacity)}",
    )
    waits = Text(snapshot.bottleneck, style="bold")
    if snapshot.starved_share is not None or snapshot.blocked_share is not None:  # nothing waits yet while processes load
        shares = (percent(share) for share in (snapshot.starved_share, snapshot.blocked_share, snapshot.weights_wait_share))
        waits.append("   learner starved {}, actors blocked {}, waiting for weights {}".format(*shares), style="not bold")
    body: list[RenderableType] = [numbers, waits]
    body += [Text(trouble, style="bold red") for trouble in snapshot.troubles[:_MAX_WARNINGS]]
    # The runbook has a section of this name.
    body += [Text(f"{warning} (docs/runbook.md, Is it learning well?)", style="yellow") for warning in snapshot.warnings[:_MAX_WARNINGS]]
    if len(snapshot.tasks) > _MAX_ROWS:
        body.append(Text(_tasks_in_short(snapshot)))
    if snapshot.tasks:
        body.append(_task_table(snapshot.tasks))
    if snapshot.agents:
        body.append(_agent_table(snapshot.agents))
    return body


def _agent_table(agents: Sequence[RunSnapshot]) -> Table:
    table = make_table("agent", "frames", "frames/s", "updates", "policy lag", "return (last 100)")
    for agent_number, agent in enumerate(agents[:_MAX_ROWS]):
        returns = "  ".join(f"{task.name} {_return(task)}" for task in agent.tasks[:_MAX_ROWS]) or "-"
        speed, updates, lag = number(agent.frames_per_second), number(agent.learner_updates), number(agent.policy_lag, 1)
        table.add_row(str(agent_number), count(agent.env_frames), speed, updates, lag, Text(returns, style="bold"))
    if len(agents) > _MAX_ROWS:
        table.add_row(f"and {len(agents) - _MAX_ROWS} more", "", "", "", "", "")
    return table


def _task_table(tasks: Sequence[TaskRow]) -> Table:
    shown = worst_to_best(tasks) if len(tasks) > _MAX_ROWS else tasks
    several, human = len(tasks) > 1, any(task.human_normalised is not None for task in tasks)
    columns = ["task", "games", *(["frames"] if several else []), "return (last 100)", "best"]
    columns += ["human-normalised"] if human else []
    table = make_table(*columns)
    for task in shown:
        cells = [task.name, f"{task.episodes:,}"]
        if several:
            cells.append("-" if task.env_frames is None else count(task.env_frames))
        scores = [percent(task.human_normalised)] if human else []
        table.add_row(*cells, Text(_return(task), style="bold"), number(task.best_return, 2), *scores)
    if len(tasks) > len(shown):
        table.add_row(f"and {len(tasks) - len(shown)} more", *[""] * (len(columns) - 1))
    return table


def worst_to_best(tasks: Sequence[TaskRow]) -> list[TaskRow]:
    """Return the three worst, the median and the three best tasks by human-normalised score; the first tasks if few scores are known."""
    ranked = _ranked(tasks)
    if len(ranked) < _MAX_ROWS:
        return list(tasks[:_MAX_ROWS])
    return [*ranked[:3], ranked[(len(ranked) - 1) // 2], *ranked[-3:]]


def _ranked(tasks: Sequence[TaskRow]) -> list[TaskRow]:
    """Return the tasks with a human-normalised score, lowest first."""
    return sorted((task for task in tasks if task.human_normalised is not None), key=lambda task: task.human_normalised or 0.0)


def _tasks_in_short(snapshot: RunSnapshot) -> str:
    """``57 tasks, 1.20 M to 1.31 M frames each, 2 without a finished game, human-normalised 23% (mean capped)``."""
    parts = [f"{len(snapshot.tasks)} tasks"]
    if frames := [task.env_frames for task in snapshot.tasks if task.env_frames is not None]:
        parts.append(f"{count(min(frames))} to {count(max(frames))} frames each")
    if unfinished := sum(task.episodes == 0 for task in snapshot.tasks):
        parts.append(f"{unfinished} without a finished game")
    if snapshot.human_normalised is not None:
        parts.append(f"human-normalised {percent(snapshot.human_normalised)} (mean capped)")
    return ", ".join(parts)


def _process_table(children: Sequence[ChildRow]) -> Table:
    table = make_table("process", "state", "weights", "cores", "memory", "restarts")
    for child in children[:_MAX_ROWS]:
        memory = "-" if child.resident_bytes is None else f"{child.resident_bytes / 2**20:,.0f} MiB"
        restarts = Text(str(child.restarts), style="yellow" if child.restarts else "")
        weights, cores = number(child.weights_updates), number(child.cpu_cores, 2)
        table.add_row(child.name, Text(child.state, style=_STATE_STYLES.get(child.state, "yellow")), weights, cores, memory, restarts)
    if len(children) > _MAX_ROWS:
        table.add_row(f"and {len(children) - _MAX_ROWS} more", "", "", "", "", "")
    return table


def make_table(first: str, *others: str) -> Table:
    """Make an empty table; columns after the first hold numbers."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 3, 0, 0))
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def clock(seconds: float) -> str:
    """``02:05``, ``1:02:05``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def count(number: float) -> str:
    """``950``, ``461 k``, ``1.25 M``, ``2.00 G``."""
    for size, letter, digits in ((1e9, "G", 2), (1e6, "M", 2), (1e4, "k", 0)):
        if number >= size:
            return f"{number / (1e3 if letter == 'k' else size):.{digits}f} {letter}"
    return f"{number:.0f}"


def _progress_text(snapshot: RunSnapshot) -> str:
    if snapshot.progress is None:
        return ""
    left = "" if snapshot.eta_seconds is None else f", {clock(snapshot.eta_seconds)} left"
    return f" ({snapshot.progress:.0%}{left})"


def _return(task: TaskRow) -> str:
    return "-" if task.episode_return is None else f"{task.episode_return:,.2f}"


def _best(task: TaskRow) -> str:
    return "" if task.best_return is None else f" (best {task.best_return:,.2f})"


def number(value: float | None, digits: int = 0) -> str:
    """``15,432``; ``-`` where it is not known."""
    return "-" if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """``40%``; ``-`` where it is not known."""
    return "-" if value is None else f"{value:.0%}"


def table_console() -> Console:
    """Return a console for tables, which wraps lines only on a terminal."""
    console = RunConsole()
    return console if console.is_terminal else RunConsole(width=_FILE_COLUMNS)
