"""JSON objects, one a line, between a measurement and its processes."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

Line = dict[str, Any]
CHUNK_BYTES = 1 << 16


class LineReader:
    """Reads a pipe without waiting longer than it is told."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""

    def fileno(self) -> int:
        """For a poller."""
        return self._descriptor

    def read(self, timeout_seconds: float = 0.0) -> list[Line]:
        """Return the lines that are there, waiting at most ``timeout_seconds`` for a first one.

        Raises:
            EOFError: the other end is gone, and everything it wrote was returned before.
            ValueError: a line is no JSON object.

        """
        deadline = time.monotonic() + timeout_seconds
        while b"\n" not in self._rest:
            remaining = max(0.0, deadline - time.monotonic())
            if not select.select([self._descriptor], [], [], remaining)[0]:
                return []
            chunk = os.read(self._descriptor, CHUNK_BYTES)
            if not chunk:
                raise EOFError
            self._rest += chunk
        *complete, self._rest = self._rest.split(b"\n")
        return [_parse(line) for line in complete if line.strip()]


def say(line: Line) -> None:
    """Write a line to standard output."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _parse(line: bytes) -> Line:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError(f"not a JSON object: {line[:100]!r}")  # noqa: TRY004  its text, not its type, is wrong
    return found
