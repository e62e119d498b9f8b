"""What the directory of a run shows: its state, its processes, and a snapshot of each agent at the newest point of its curve."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from herd.config.errors import SettingsError
from herd.config.loading.sources import read_yaml_file
from herd.files import FileError
from herd.run.checkpoints import CheckpointError, verified_contents
from herd.run.journals import newest_point, stream_points
from herd.run.paths import PROCESSES, agent_directories, checkpoint_folders, config_file
from herd.run.processes import SESSION, lives, read_announcement, run_state
from herd.telemetry.scrape import ScrapeError, answer
from herd.view.snapshot import snapshot_of, together

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from herd.view.snapshot import RunSnapshot

_TIMEOUT_SECONDS = 1.0
"""Timeout of a probe. Localhost answers in milliseconds, and a busy learner in tenths of a second."""


class ProcessStatus(NamedTuple):
    """Whether a process works."""

    state: str
    """ready, not ready (starting), hanging, or gone."""
    pid: int | None = None
    """None if it is gone."""
    reason: str = ""
    """What it answers about its state."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a run, or of one agent of several."""

    directory: Path
    state: str
    """running, finished, stopped, crashed, killed or ended; see `herd.run.processes`. unknown: its settings cannot be read, and nothing
    else says."""
    message: str
    """Why the run crashed or was killed, or why its settings cannot be read; empty otherwise."""
    warnings: tuple[str, ...]
    """What the run went on without, and warnings about its learning."""
    processes: dict[str, ProcessStatus]
    """By name of the child; of an agent, only its learners."""
    now: RunSnapshot | None
    """Its numbers at the newest point, or those of all agents together; None before the first point."""
    checkpoint: str | None = None
    """Name of the newest checkpoint, which is its number of learner updates. None for a run with several agents."""
    checkpoint_problem: str | None = None
    """What is wrong with the newest checkpoint; None if it is intact. If not, `herd evaluate` and `--resume` use the previous one."""
    member: dict[str, Any] | None = None
    """For a member of a population: numbers of its newest order and its newest copy, fitness and settings."""
    agents: tuple[RunStatus, ...] = ()
    """For a run with several agents: the status of each agent."""
    is_readable: bool = True
    """Whether its settings can be read."""

    @property
    def is_running(self) -> bool:
        """Whether any process of the run is alive."""
        return any(process.state != "gone" for process in self.processes.values())

    def as_json(self) -> dict[str, Any]:
        """Return plain types, for ``--json``. What is not known is None."""
        now = self.now
        return {
            "run_dir": str(self.directory),
            "state": self.state,
            "running": self.is_running,
            "message": self.message,
            "warnings": list(self.warnings),
            "processes": {name: process._asdict() for name, process in self.processes.items()},
            "env_frames": now and int(now.env_frames),
            "frames_per_second": now.frames_per_second if now is not None and self.is_running else None,
            "human_normalised_mean_capped": now and now.human_normalised,
            "tasks": [] if now is None else [asdict(task) for task in now.tasks],
            "checkpoint": self.checkpoint,
            "checkpoint_problem": self.checkpoint_problem,
            "member": self.member,
            "agents": [agent.as_json() for agent in self.agents],
        }


def read_status(run_dir: Path) -> RunStatus:
    """Read a run's files, ask its processes, and verify every byte of its newest checkpoints."""
    status = _read_status(run_dir)
    try:
        if config_file(run_dir).is_file():
            read_yaml_file(config_file(run_dir))
    except SettingsError as error:
        is_known = status.is_running or (run_dir / SESSION).exists()
        message = str(error).removeprefix(f"{run_dir}/")
        return replace(status, state=status.state if is_known else "unknown", message=message, is_readable=False)
    return status


def _read_status(run_dir: Path) -> RunStatus:
    processes = {file.stem: _process(file) for file in sorted((run_dir / PROCESSES).glob("*.json"))}
    run = run_state(run_dir, has_processes=any(process.pid is not None for process in processes.values()))
    unreadable = (process.reason for process in processes.values() if process.state == "gone" and process.reason)
    run = run._replace(warnings=(*run.warnings, *unreadable))
    directories = agent_directories(run_dir)
    if directories == [run_dir]:
        return _agent(run_dir, run.state, processes, message=run.message, warnings=run.warnings)
    learners = sorted((name for name in processes if name.startswith("learner-")), key=lambda name: int(name.rpartition("-")[2]))
    shards = max(1, len(learners) // len(directories))
    agents = []
    for number, directory in enumerate(directories):
        own = {name: processes[name] for name in learners[number * shards : (number + 1) * shards]}
        lives_on = any(process.pid is not None for process in own.values())
        agents.append(_agent(directory, run.state if run.state != "running" or lives_on else "ended", own))
    known = [agent.now for agent in agents if agent.now is not None]
    warnings = [f"agent {agent.directory.name}: {warning}" for agent in agents for warning in agent.warnings]
    return RunStatus(
        run_dir, run.state, run.message, (*run.warnings, *warnings), processes, together(known, ()) if known else None, agents=tuple(agents)
    )


def _agent(
    directory: Path, state: str, processes: dict[str, ProcessStatus], *, message: str = "", warnings: tuple[str, ...] = ()
) -> RunStatus:
    try:
        point = newest_point(directory)
    except FileError as error:
        point, warnings = {}, (*warnings, str(error))
    now = snapshot_of(point, _curve(directory)) if point else None
    checkpoint, problem = _newest_checkpoint(directory)
    return RunStatus(
        directory,
        state,
        message,
        (*warnings, *(now.warnings if now is not None else ())),
        processes,
        now,
        checkpoint,
        problem,
        member=member if isinstance(member := point.get("population"), dict) else None,
    )


def _curve(directory: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the points of a learning curve; none if one of them is damaged, so that the status still shows the newest."""
    with suppress(FileError):
        yield from stream_points(directory)


def _newest_checkpoint(directory: Path) -> tuple[str | None, str | None]:
    """Return the name of the newest checkpoint and what is wrong with it."""
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


def _process(announcement: Path) -> ProcessStatus:
    """Ask the process that wrote ``announcement``."""
    try:
        (pid, address), written = read_announcement(announcement), announcement.stat().st_mtime
    except FileError as error:
        return ProcessStatus("gone", reason=str(error))
    except OSError:
        return ProcessStatus("gone")
    if not lives(pid, written):
        return ProcessStatus("gone")
    try:
        is_alive, said_alive = answer(f"{address}/healthz", _TIMEOUT_SECONDS)
        is_ready, said_ready = answer(f"{address}/readyz", _TIMEOUT_SECONDS)
    except ScrapeError:
        return ProcessStatus("hanging", pid, f"no answer within {_TIMEOUT_SECONDS:g} s")
    if not is_alive:
        return ProcessStatus("hanging", pid, said_alive)
    reason = said_ready.removeprefix("ok").removeprefix("not ready").lstrip(":; ")
    return ProcessStatus("ready" if is_ready else "not ready", pid, reason)
