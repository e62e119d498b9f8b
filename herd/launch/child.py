"""A child process: started in its own group, bound to the life of this process, with its output in a log file."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from herd.files import MAX_JOURNAL_BYTES, open_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PR_SET_PDEATHSIG = 1
_TAIL_BYTES = 16_384
MAX_LOG_BYTES = 64 << 20
"""Size of a log at which its older half is dropped. A service writes a few kB an hour, but an environment may print every step."""


class Child:
    """A running child. Signals go to its process group, so that the processes that it started end too."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path, *, niceness: int = 0) -> None:
        """Start the child. ``niceness`` above 0 lowers its priority. If its log cannot be opened, it runs without a log.

        Raises:
            OSError: the process cannot be created.

        """
        self.log = log
        self.started = time.monotonic()
        self.log_problem: str | None = None
        """Why its output is lost; None if it goes to the log."""
        with self._open_log() as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                process_group=0,  # Ctrl-C at the terminal reaches only the supervisor, which stops all children cleanly
                preexec_fn=before_exec(os.getpid(), niceness),  # noqa: PLW1509  system calls only, which take no lock
            )

    def _open_log(self) -> BinaryIO:
        try:
            # Non-blocking, so that a pipe without a reader is an error. It has no effect on regular files.
            descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
            os.set_blocking(descriptor, True)  # the child inherits it
            return open(descriptor, "ab")
        except OSError as error:  # a failing disk must not stop the run
            self.log_problem = error.strerror or str(error)
            return Path(os.devnull).open("ab")

    @property
    def pid(self) -> int:
        """Id of the process and of its group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Signal the child: SIGTERM goes to the child, which stops its own processes; SIGKILL goes to the whole group."""
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.pid, number)
            else:
                self._process.send_signal(number)

    def end(self, patience_seconds: float) -> None:
        """Ask the child to stop, and kill it if it does not; returns when it has ended."""
        self.send(signal.SIGTERM)
        try:
            self._process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self._process.wait()

    def bound_log(self, max_bytes: int = MAX_LOG_BYTES) -> None:
        """Move the newer half of a log that has grown beyond ``max_bytes`` to <log>.1, which is replaced, and start the log again.

        The child keeps its file open and goes on appending to it. What it prints between the copy and the cut is lost.
        """
        try:
            size = self.log.stat().st_size
            if size <= max_bytes:
                return
            with open_file(self.log, size + max_bytes) as full:
                full.seek(size - max_bytes // 2)
                full.readline()  # the rest of a line that is cut
                replace_file(self.log.with_name(self.log.name + ".1"), iter(partial(full.read, 1 << 20), b""))
            os.truncate(self.log, 0)
            self._log_start = 0
        except OSError:  # a failing disk must not stop the run; tried again at the next call
            return

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines of its log."""
        return last_lines(self.log, count, start=self._log_start)


def last_lines(log: Path, count: int, *, start: int = 0) -> list[str]:
    """Return the last ``count`` lines of a log after byte ``start``; nothing if there is no log. Control characters become ``?``."""
    try:
        with open_file(log, MAX_JOURNAL_BYTES) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
    return ["".join(letter if letter.isprintable() or letter == "\t" else "?" for letter in line) for line in lines]


def describe_exit(code: int) -> str:
    """Return ``exit code 1``, or the name of the signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def before_exec(parent: int, niceness: int = 0, number: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """On Linux, make the kernel send ``number`` to the child when the thread that started it ends, for any reason."""
    prctl = _PRCTL

    def prepare() -> None:
        os.nice(niceness)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
            if os.getppid() != parent:  # the parent died between fork and prctl
                os._exit(1)

    return prepare


# Looked up here, because nothing may be loaded between fork and exec.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
