"""A process of a measurement that answers commands with lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Self

from herd.bench.fan.lines import LineReader
from herd.bench.stages import StageError, stage_environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from herd.bench.fan.lines import Line

STOP_SECONDS = 10.0
"""What a process may take to end by itself, once asked."""
VM_PEAK = "VmHWM:"
LAST_BYTES = 4096
"""Of what a process wrote to standard error: where its last line is looked for."""


class Child:
    """Started in a session of its own, so that Ctrl-C reaches the measurement alone, which then ends it."""

    def __init__(self, name: str, command: Sequence[str], *, talks: bool = True) -> None:
        """Start ``command`` in the environment of a stage; ``talks``: it reads and writes lines of JSON."""
        self.name = name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        pipe = subprocess.PIPE if talks else subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, env=stage_environment(), stdin=pipe, stdout=pipe, stderr=self._log, start_new_session=True
        )
        self._lines = LineReader(self._process.stdout.fileno()) if self._process.stdout is not None else None
        self._waiting: deque[Line] = deque()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def send(self, do: str, **arguments: object) -> None:
        """Give a command.

        Raises:
            StageError: it ended.

        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def receive(self, timeout_seconds: float) -> Line:
        """Return its next line.

        Raises:
            StageError: it ended, or said nothing for that long.

        """
        line = self.poll(timeout_seconds)
        if line is None:
            raise StageError(f"{self.name}: no answer within {timeout_seconds:g} s")
        return line

    def poll(self, timeout_seconds: float = 0.0) -> Line | None:
        """Return its next line, None if there is none within ``timeout_seconds``.

        Raises:
            StageError: it ended.

        """
        assert self._lines is not None
        try:
            if not self._waiting:
                self._waiting.extend(self._lines.read(timeout_seconds))
        except EOFError:
            raise self._ended() from None
        except ValueError as error:
            raise StageError(f"{self.name}: {error}") from error
        return self._waiting.popleft() if self._waiting else None

    def ask(self, do: str, *, timeout_seconds: float, **arguments: object) -> Line:
        """Give a command and return its answer; nothing else may be on the way."""
        self.send(do, **arguments)
        return self.receive(timeout_seconds)

    def check(self) -> None:
        """Raise StageError if it ended."""
        if self._process.poll() is not None:
            raise self._ended()

    def peak_memory_bytes(self) -> int:
        """Largest resident memory so far."""
        return peak_memory_bytes(self.pid)

    def close(self) -> None:
        """End it: by itself where it listens, else by force. Closing again does nothing."""
        if self._process.poll() is None:
            if self._process.stdin is not None:
                self._close_input()
            else:
                self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdin is not None:
            self._close_input()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:  # it ended with a command unread
            return

    def _ended(self) -> StageError:
        deadline = time.monotonic() + STOP_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)  # its pipe closes a moment before it ends
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - LAST_BYTES))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return StageError(f"{self.name}: ended with exit code {self._process.poll()}: {lines[-1].strip() if lines else '(no output)'}")


def peak_memory_bytes(pid: int | str = "self") -> int:
    """Largest resident memory of a process so far; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(VM_PEAK)), 0)
