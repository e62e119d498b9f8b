"""``herd status``: lists the runs of this machine, their state and their progress."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from herd.cli.options import CommandError, OneLineParser, number
from herd.cli.run_paths import RUNS, existing_run
from herd.config.errors import printable
from herd.files import read_json
from herd.run.paths import PROCESSES, agent_directories, checkpoint_folders

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


SECONDS = number("number from 0 to 600", lambda value: 0 <= value <= 600)


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a run."""

    run_dir: str
    state: str
    """running, finished, stopped, crashed, killed or ended; see `herd.run.processes`."""
    message: str
    """Why the run crashed or was killed; empty otherwise."""
    processes: dict[str, str]
    """Name of a child -> ready, not ready (starting or hanging), gone."""
    pids: dict[str, int]
    """Process ids of the living children."""
    env_frames: int | None
    frames_per_second: float | None
    """Frames per second over the newest log interval; None if the run is not running."""
    episode_return_mean_100: float | None
    tasks: int
    """Env frames at the newest point of the curve; 0 before its first point."""
    human_normalised_mean_capped: float | None
    """Human-normalised score over the tasks with human scores; None until each of them has finished a game."""
    checkpoint: str | None
    """Name of the newest checkpoint, which is its number of learner updates. None for a run with several agents."""
    checkpoint_problem: str | None
    """What is wrong with the newest checkpoint; None if it is intact. If not, `herd evaluate` and `--resume` use the previous one."""
    member: dict[str, Any] | None = None
    """For a member of a population: numbers of its newest order and its newest copy, fitness and settings."""
    agents: tuple[RunStatus, ...] = ()
    """For a run with several agents: the status of each agent with its learners."""

    @property
    def is_running(self) -> bool:
        """Whether any process of the run is alive."""
        return any(state != "gone" for state in self.processes.values())


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd status",
        description="Shows the runs of this machine: processes, progress, newest checkpoint. "
        "With --release: a release in a cluster, its pods, speed, policy lag, returns, restarts, and what is not ready.",
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
    """Print the state of runs; returns the exit code."""
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
    statuses = [read_status(directory) for directory in directories]
    if options.json:
        print(json.dumps([{**asdict(status), "running": status.is_running} for status in statuses], indent=2))
        return 0
    _print_table(statuses)
    for status in statuses:
        members = [_membership(agent) for agent in status.agents if agent.member is not None]
        for line in [status.message, *(agent.checkpoint_problem for agent in (status, *status.agents)), *members]:
            if line:
                print(printable(f"{status.run_dir}: {line}"))
        if status.is_running and (options.run_dirs or len(statuses) == 1):
            _print_processes(status)
    return 0


def read_status(run_dir: Path) -> RunStatus:
    """Read a run's files and check whether its processes answer."""
    from herd.run.journals import newest_point  # noqa: PLC0415  not needed for --help
    from herd.run.processes import run_state  # noqa: PLC0415

    found = {file.stem: _process_state(file) for file in sorted((run_dir / PROCESSES).glob("*.json"))}
    processes = {name: state for name, (state, _) in found.items()}
    pids = {name: pid for name, (_, pid) in found.items() if pid is not None}
    state = run_state(run_dir, has_processes=bool(pids))

    def of(directory: Path, own: dict[str, str]) -> RunStatus:
        point = newest_point(directory)
        checkpoint, problem = _newest_checkpoint(directory)
        running = any(state != "gone" for state in own.values())
        return RunStatus(
            run_dir=str(directory),
            state=state.state if directory == run_dir or state.state != "running" or running else "ended",
            message=state.message if directory == run_dir else "",
            processes=own,
            pids={name: pid for name, pid in pids.items() if name in own},
            env_frames=point.get("env_frames"),
            frames_per_second=point.get("frames_per_second") if running else None,
            episode_return_mean_100=point.get("episode_return_mean_100"),
            tasks=len(point.get("tasks") or {}),
            human_normalised_mean_capped=point.get("human_normalised_mean_capped"),
            checkpoint=checkpoint,
            checkpoint_problem=problem,
            member=member if isinstance(member := point.get("population"), dict) else None,
        )

    directories = agent_directories(run_dir)
    if directories == [run_dir]:
        return of(run_dir, processes)
    learners = sorted((name for name in processes if name.startswith("learner-")), key=lambda name: int(name.rpartition("-")[2]))
    shards = max(1, len(learners) // len(directories))
    agents = tuple(
        of(directory, {name: processes[name] for name in learners[number * shards : (number + 1) * shards]})
        for number, directory in enumerate(directories)
    )
    return RunStatus(
        run_dir=str(run_dir),
        state=state.state,
        message=state.message,
        processes=processes,
        pids=pids,
        env_frames=sum(agent.env_frames or 0 for agent in agents),
        frames_per_second=sum(agent.frames_per_second or 0.0 for agent in agents) if any(agent.is_running for agent in agents) else None,
        episode_return_mean_100=None,
        tasks=max(agent.tasks for agent in agents),
        human_normalised_mean_capped=None,
        checkpoint=None,
        checkpoint_problem=None,
        agents=agents,
    )


def _newest_checkpoint(directory: Path) -> tuple[str | None, str | None]:
    """Return the name of the newest checkpoint and what is wrong with it. Every byte is verified, as when it is used."""
    from herd.run.checkpoints.manifest import CheckpointError, verified_contents  # noqa: PLC0415  not needed for --help

    while folders := checkpoint_folders(directory):
        newest = folders[-1]
        try:
            verified_contents(newest)
        except CheckpointError as error:
            if not newest.exists():
                continue  # a running learner has just removed it
            return newest.name, str(error)
        return newest.name, None
    return None, None


def _process_state(announcement: Path) -> tuple[str, int | None]:
    """Return ready, not ready or gone, and the id of the process if it is alive."""
    from herd.run.processes import lives, metrics_address  # noqa: PLC0415  loads psutil; not needed for --help
    from herd.telemetry.scrape import probe  # noqa: PLC0415

    try:
        said = read_json(announcement)
        address, pid, written = metrics_address(said), int(said["pid"]), announcement.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        return "gone", None
    if not lives(pid, written):
        return "gone", None
    return "ready" if probe(f"{address}/readyz", timeout=0.5) else "not ready", pid


def _returns(status: RunStatus) -> str:
    """Return the text of the returns column. A mean return over several tasks is meaningless, so it shows human-normalised scores."""
    if status.tasks > 1 and not status.agents:
        capped = status.human_normalised_mean_capped
        return f"{status.tasks} tasks" if capped is None else f"{status.tasks} tasks, {capped:.0%} of human (capped)"
    return "-" if status.episode_return_mean_100 is None else f"{status.episode_return_mean_100:,.2f}"


def _membership(agent: RunStatus) -> str:
    member = agent.member or {}
    fitness, settings = member.get("fitness"), member.get("settings") or {}
    known = "not known yet" if fitness is None else f"{fitness:.2f}"
    values = (f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in settings.items())
    return f"{_name_within_run(agent)}: fitness {known}; {', '.join(values)}"


def _name_within_run(agent: RunStatus) -> str:
    return "/".join(Path(agent.run_dir).parts[-2:])


def _print_processes(status: RunStatus) -> None:
    from rich.table import Table  # noqa: PLC0415

    from herd.view.terminal import table_console  # noqa: PLC0415

    table = Table("process", "state", "pid", box=None, pad_edge=False, title_justify="left")
    for name, state in status.processes.items():
        table.add_row(name, state, str(status.pids.get(name, "-")))
    print()
    table_console().print(table, highlight=False)


def _print_table(statuses: Sequence[RunStatus]) -> None:
    from rich.table import Table  # noqa: PLC0415

    from herd.view.terminal import count, table_console  # noqa: PLC0415

    table = Table("run", "state", "processes", "frames", "frames/s", "return (last 100)", "checkpoint", box=None, pad_edge=False)
    rows = ((name, each) for run in statuses for name, each in [(run.run_dir, run), *((_name_within_run(own), own) for own in run.agents)])
    for name, status in rows:
        states = list(status.processes.values())
        processes = ", ".join(f"{states.count(state)} {state}" for state in ("ready", "not ready", "gone") if state in states)
        table.add_row(
            name,
            status.state,
            processes if status.is_running else "-",
            "-" if status.env_frames is None else count(status.env_frames),
            "-" if status.frames_per_second is None else f"{status.frames_per_second:,.0f}",
            _returns(status),
            "-" if status.checkpoint is None else f"{status.checkpoint}{' damaged' * (status.checkpoint_problem is not None)}",
        )
    table_console().print(table, highlight=False)
