"""The state of the newest session of a run: RUN/session.json, which ``herd train`` writes at its start and at its end."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

import psutil

from herd.files import read_json, replace_file
from herd.run.journals import METRICS
from herd.run.paths import REPORT, agent_directories

if TYPE_CHECKING:
    from pathlib import Path

SESSION = "session.json"
State = Literal["running", "finished", "stopped", "crashed", "killed", "ended"]
"""finished: it met a stop condition. stopped: it was asked to stop and wrote a checkpoint. crashed: it failed. killed: it ended without
stopping in order. ended: processes started by hand wrote their report."""
_ENDS: frozenset[str] = frozenset({"finished", "stopped", "crashed", "killed"})
_VANISHED = "its herd train ended without a message: it was killed, or the machine went down"


class Standing(NamedTuple):
    """The state of a run."""

    state: State
    message: str = ""
    """Why the run crashed or was killed; one line."""


def begin_session(run_dir: Path) -> None:
    """Record that this process supervises the run. If the file cannot be written, the run continues."""
    _write(run_dir, "running", "")


def end_session(run_dir: Path, *, exit_code: int, was_asked: bool, message: str) -> None:
    """Record how the run ended, with the message and exit code of ``herd train``."""
    if exit_code == 0:
        _write(run_dir, "stopped" if was_asked else "finished", "")
    else:
        _write(run_dir, "killed" if message.startswith("killed") else "crashed", message)


def standing(run_dir: Path, *, has_processes: bool) -> Standing:
    """Return the state of a run. ``has_processes``: whether any announced process is alive."""
    try:
        written = (run_dir / SESSION).stat().st_mtime
        said = read_json(run_dir / SESSION)
        state, message, pid = said["state"], str(said["message"]), int(said["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return Standing("running") if has_processes else _left_by_hand(run_dir)
    if has_processes or (state == "running" and _lives(pid, written)):
        return Standing("running")
    return Standing(state, message) if state in _ENDS else Standing("killed", _VANISHED)


def _left_by_hand(run_dir: Path) -> Standing:
    """Return the state of a run without ``herd train``: the learner's last action is to write its report, after the last point."""
    try:
        in_order = all((agent / REPORT).stat().st_mtime >= (agent / METRICS).stat().st_mtime for agent in agent_directories(run_dir))
    except OSError:
        in_order = False
    return Standing("ended") if in_order else Standing("killed", "no process is alive, and the learner left no report")


def _lives(pid: int, written: float) -> bool:
    """Return whether the process that wrote the file is alive. Process ids are reused, so its start must be older than the file."""
    try:
        process = psutil.Process(pid)
        return process.create_time() <= written + 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _write(run_dir: Path, state: State, message: str) -> None:
    record = {"state": state, "message": message, "pid": os.getpid(), "at": datetime.now(UTC).isoformat(timespec="seconds")}
    with suppress(OSError):
        replace_file(run_dir / SESSION, json.dumps(record))
