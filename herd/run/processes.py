"""The processes of a run: what they announce, whether ``herd train`` supervises them, and how its newest session ended.

Every process announces itself in RUN/processes/<service>-<number>.json. ``herd train`` holds RUN/.lock as long as it lives, and writes
RUN/session.json at its start and at its end.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import psutil
from pydantic import BaseModel, Field

from herd.config.addresses import LOOPBACK, local_host, with_port
from herd.files import MAX_JSON_BYTES, FileError, read_file, read_record, replace_file
from herd.run.journals import METRICS
from herd.run.paths import LOCK, PROCESSES, REPORT, agent_directories

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

SESSION = "session.json"
State = Literal["running", "finished", "stopped", "crashed", "killed", "ended"]
"""finished: it met a stop condition. stopped: it was asked to stop and wrote a checkpoint. crashed: it failed. killed: it ended without
stopping in order. ended: processes started by hand wrote their report."""
_VANISHED = "its herd train ended without a message: it was killed, or the machine went down"

_log = logging.getLogger(__name__)


class RunState(NamedTuple):
    """Whether a run is running, or how it ended."""

    state: State
    message: str = ""
    """Why the run crashed or was killed; one line."""
    warnings: tuple[str, ...] = ()
    """What the run went on without; a line each."""


class _Session(BaseModel):
    """RUN/session.json."""

    state: Literal["running", "finished", "stopped", "crashed", "killed"]
    message: str
    warnings: tuple[str, ...] = ()
    pid: Annotated[int, Field(strict=True, gt=0, lt=1 << 31)]
    at: str


def announce_process(run_dir: Path, service: str, number: int, *, metrics_host: str, metrics_port: int) -> None:
    """Write RUN/processes/<service>-<number>.json, where the live view finds this process's metrics.

    If the file cannot be written, the process continues without being shown.
    """
    path = run_dir / PROCESSES / f"{service}-{number}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({"pid": os.getpid(), "metrics_host": local_host(metrics_host), "metrics_port": metrics_port}))
    except OSError as error:
        _log.warning("cannot announce this process: %s: %s", path, error.strerror or error)


def read_announcement(file: Path) -> tuple[int, str]:
    """Return the id of the process that announced itself in ``file``, and the address of its metrics.

    Raises:
        FileNotFoundError: there is no announcement.
        FileError: the file cannot be read, or is none.

    """

    def parse(said: Any) -> tuple[int, str]:
        pid = said["pid"]
        if type(pid) is not int or not 0 < pid < 1 << 31:
            raise ValueError("its process id is impossible")
        return pid, metrics_address(said)

    return read_record(file, "an announcement", parse)


def metrics_address(announced: Mapping[str, object]) -> str:
    """``http://host:port`` of a process, from what it announced.

    Raises:
        KeyError, TypeError, ValueError: that is no announcement.

    """
    return f"http://{with_port(str(announced.get('metrics_host', LOOPBACK)), int(str(announced['metrics_port'])))}"


def lives(pid: int, written: float) -> bool:
    """Return whether the process is alive that wrote a file with this id at ``written``, in seconds since the epoch.

    Process ids are reused, so the process must have started before.
    """
    try:
        process = psutil.Process(pid)
        return process.create_time() <= written + 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def is_supervised(directory: Path) -> bool:
    """Return whether a ``herd train`` uses the run directory; it writes the settings itself."""
    try:
        lock = os.open(directory / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for a writer
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def begin_session(run_dir: Path) -> Callable[[], None]:
    """Record that this process supervises the run. If the file cannot be written, the run continues.

    Returns a function that puts the record of the session before back, for a start that is refused; it raises ``OSError``.
    """
    file, before = run_dir / SESSION, None
    with suppress(OSError):
        before = bytes(read_file(file, MAX_JSON_BYTES))
    _write(run_dir, "running", "")
    return file.unlink if before is None else partial(replace_file, file, [before])


def end_session(run_dir: Path, *, exit_code: int, was_asked: bool, message: str, warnings: Sequence[str] = ()) -> None:
    """Record how the run ended, with the message and exit code of ``herd train``. ``warnings``: what the run went on without."""
    if exit_code == 0:
        _write(run_dir, "stopped" if was_asked else "finished", "", warnings)
    else:
        _write(run_dir, "killed" if message.startswith("killed") else "crashed", message, warnings)


def run_state(run_dir: Path, *, has_processes: bool) -> RunState:
    """Return the state of a run. ``has_processes``: whether any announced process is alive."""
    try:
        written = (run_dir / SESSION).stat().st_mtime
        said = read_record(run_dir / SESSION, "the record of a session", _Session.model_validate)
    except FileNotFoundError:
        return RunState("running") if has_processes else _left_by_hand(run_dir)
    except (FileError, OSError) as error:
        return RunState("running" if has_processes else "killed", str(error))
    if has_processes or (said.state == "running" and lives(said.pid, written)):
        return RunState("running")
    return RunState("killed", _VANISHED) if said.state == "running" else RunState(said.state, said.message, said.warnings)


def _left_by_hand(run_dir: Path) -> RunState:
    """Return the state of a run without ``herd train``: the learner's last action is to write its report, after the last point."""
    try:
        in_order = all((agent / REPORT).stat().st_mtime >= (agent / METRICS).stat().st_mtime for agent in agent_directories(run_dir))
    except OSError:
        in_order = False
    return RunState("ended") if in_order else RunState("killed", "no process is alive, and the learner left no report")


def _write(run_dir: Path, state: State, message: str, warnings: Sequence[str] = ()) -> None:
    record = {
        "state": state,
        "message": message,
        "warnings": list(warnings),
        "pid": os.getpid(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with suppress(OSError):
        replace_file(run_dir / SESSION, json.dumps(record))
