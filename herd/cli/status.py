"""``herd status``: lists the runs of this machine, their state and their progress."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from herd.cli.options import CommandError, OneLineParser, number
from herd.cli.run_paths import existing_run
from herd.config.errors import printable
from herd.run.journals import mapping_in, number_in
from herd.run.paths import RUNS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from herd.view.status import RunStatus

SECONDS = number("number from 0 to 600", lambda value: 0 <= value <= 600)


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd status",
        description="Shows the runs of this machine with their processes, progress and newest checkpoint. "
        "With --release, shows a release in a cluster instead: its pods, speed, policy lag, returns, restarts, and what is not ready.",
    )
    parser.add_argument("run_dirs", type=Path, nargs="*", metavar="RUN_DIR", help=f"default: every run in {RUNS}/")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--release", metavar="R", help="show this Helm release in a cluster instead")
    parser.add_argument("-n", "--namespace", metavar="N", help="with --release: its namespace; default: that of the context")
    parser.add_argument("--context", metavar="C", help="with --release: context of the kubeconfig; default: its current context")
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="with --release: default: KUBECONFIG, then ~/.kube/config, then the service account of this pod",
    )
    parser.add_argument(
        "--seconds", type=SECONDS, metavar="S", help="with --release: seconds over which rates are measured; default: 5; 0: no rates"
    )
    parser.add_argument("--all", action="store_true", help="with --release: list every pod, not only those in trouble")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the state of runs; returns the exit code, 2 if the settings of a run cannot be read."""
    options = _parser().parse_args(argv)
    if options.release is not None:
        from herd.cli.release import show_release  # noqa: PLC0415  local runs do without

        return show_release(options)
    for name in ("namespace", "context", "kubeconfig", "seconds", "all"):
        value = getattr(options, name)
        if value is not None and value is not False:
            raise CommandError(f"--{name} needs --release (see herd status --help)")
    directories = [existing_run(directory) for directory in options.run_dirs] or sorted(path.parent for path in RUNS.glob("*/config.yaml"))
    if not directories and not options.json:
        raise CommandError(f"no runs in {RUNS}/: name a run directory, or start one with herd train")
    from herd.view.status import read_status  # noqa: PLC0415  loads psutil; not needed for --help

    statuses = [read_status(directory) for directory in directories]
    exit_code = 0
    for status in statuses:
        if not status.is_readable:
            print(printable(f"herd: {status.directory}: {status.message}"), file=sys.stderr)
            exit_code = 2
    if options.json:
        print(json.dumps([status.as_json() for status in statuses], indent=2))
        return exit_code
    _print_table(statuses)
    for status in statuses:
        members = [_membership(agent) for agent in status.agents if agent.member is not None]
        message = status.message if status.is_readable else ""
        for line in [message, *status.warnings, *(agent.checkpoint_problem for agent in (status, *status.agents)), *members]:
            if line:
                print(printable(f"{status.directory}: {line}"))
        if status.is_running and (options.run_dirs or len(statuses) == 1):
            _print_processes(status)
    return exit_code


def _returns(status: RunStatus) -> str:
    """Return the text of the returns column. A mean return over several tasks is meaningless, so it shows human-normalised scores."""
    tasks = () if status.now is None else status.now.tasks
    if status.now is None or len(tasks) < 2:
        return "-" if not tasks or tasks[0].episode_return is None else f"{tasks[0].episode_return:,.2f}"
    capped = status.now.human_normalised
    return f"{len(tasks)} tasks" if capped is None else f"{len(tasks)} tasks, {capped:.0%} of human (capped)"


def _membership(agent: RunStatus) -> str:
    member = agent.member or {}
    fitness, settings = number_in(member, "fitness"), mapping_in(member, "settings")
    known = "not known yet" if fitness is None else f"{fitness:.2f}"
    values = (f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in settings.items())
    return f"{_name_within_run(agent)}: fitness {known}; {', '.join(values)}"


def _name_within_run(agent: RunStatus) -> str:
    return "/".join(agent.directory.parts[-2:])


def _print_processes(status: RunStatus) -> None:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from herd.view.terminal import table_console  # noqa: PLC0415

    table = Table("process", "state", "pid", "", box=None, pad_edge=False, title_justify="left")
    for name, (state, pid, reason) in status.processes.items():
        table.add_row(name, state, "-" if pid is None else str(pid), Text(reason))
    print()
    table_console().print(table, highlight=False)


def _print_table(statuses: Sequence[RunStatus]) -> None:
    from rich.table import Table  # noqa: PLC0415

    from herd.view.terminal import count, number, table_console  # noqa: PLC0415

    table = Table("run", "state", "processes", "frames", "frames/s", "return (last 100)", "checkpoint", box=None, pad_edge=False)
    for run in statuses:
        for name, status in [(str(run.directory), run), *((_name_within_run(own), own) for own in run.agents)]:
            states, now = [process.state for process in status.processes.values()], status.now
            processes = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
            table.add_row(
                name,
                status.state,
                processes if status.is_running else "-",
                "-" if now is None else count(now.env_frames),
                number(now.frames_per_second) if now is not None and status.is_running else "-",
                _returns(status),
                "-" if status.checkpoint is None else f"{status.checkpoint}{' damaged' * (status.checkpoint_problem is not None)}",
            )
    table_console().print(table, highlight=False)
