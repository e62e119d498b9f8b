"""One child process: started in its own group, bound to this process's life, its output in a log file."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PR_SET_PDEATHSIG = 1
_TAIL_BYTES = 16_384


class Child:
    """A running child. Its group receives the signals, so that nothing it started stays behind."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path, *, niceness: int = 0) -> None:
        """Start it; ``niceness`` above 0 lets others go first where CPUs are short. Where its log cannot be opened it runs without.

        Raises:
            OSError: the process cannot be made.

        """
        self.log = log
        self.started = time.monotonic()
        self.log_problem: str | None = None
        """Why its output is lost; None where it goes to the log."""
        with self._open_log() as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                process_group=0,  # a Ctrl-C at the terminal reaches the supervisor alone, which stops them in order
                preexec_fn=before_exec(os.getpid(), niceness),  # noqa: PLW1509  system calls only, which take no lock
            )

    def _open_log(self) -> BinaryIO:
        try:
            return self.log.open("ab")
        except OSError as error:  # a disk that fails must not keep the run from going on
            self.log_problem = error.strerror or str(error)
            return Path(os.devnull).open("ab")

    @property
    def pid(self) -> int:
        """Of the process and of its group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Signal the child: SIGTERM to itself, which drains what it started; SIGKILL to its whole group."""
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.pid, number)
            else:
                self._process.send_signal(number)

    def end(self, patience_seconds: float) -> None:
        """Ask it to stop, and kill it where it does not; returns when it has ended."""
        self.send(signal.SIGTERM)
        try:
            self._process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self._process.wait()

    def last_lines(self, count: int) -> list[str]:
        """Return the end of what it wrote to its log."""
        return last_lines(self.log, count, start=self._log_start)


def last_lines(log: Path, count: int, *, start: int = 0) -> list[str]:
    """Return the last ``count`` lines of a log, none from before byte ``start``; nothing where there is none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []


def describe_exit(code: int) -> str:
    """``exit code 1``, or the name of the signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def before_exec(parent: int, niceness: int = 0, number: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """Linux: the kernel sends the child ``number`` when the thread that started it (of a supervisor: its main thread) ends, however."""
    prctl = _PRCTL

    def prepare() -> None:
        os.nice(niceness)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
            if os.getppid() != parent:  # it died between fork and prctl
                os._exit(1)

    return prepare


# Looked up once, here: between fork and exec nothing may be loaded.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
