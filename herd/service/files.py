"""Files of a run that are whole or not there, also after a power cut, and leave nothing behind where the disk fails."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TEMPORARY = ".tmp"
"""Ending of files on their way in; readers look for other names."""
_LOOK_BACK_BYTES = 1 << 16
"""A torn line is shorter: a point of the curve with 57 tasks takes 6 kB."""


def replace_file(path: Path, content: str | memoryview) -> None:
    """Make ``content`` that of ``path``; it is on disk when this returns. One process writes a file at a time.

    Raises:
        OSError: it cannot be written; what was there before is as it was.

    """
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        # Never through a link that somebody put there.
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    flush_directory(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append one line. What a killed process or a power cut left unfinished at the end goes first.

    Raises:
        OSError: it cannot be written; no part of it stays.

    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        end = _end_of_lines(descriptor)
        os.ftruncate(descriptor, end)
        try:
            _write_all(descriptor, line.encode() + b"\n")
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, end)
            raise
    finally:
        os.close(descriptor)


def flush_directory(path: Path) -> None:
    """Make the names in a folder survive a power cut; flushing the files alone does not bring their names."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``: a disk that becomes full takes the part that fits without a word, and complains at the next call."""
    while data:
        data = data[os.write(descriptor, data) :]


def _end_of_lines(descriptor: int) -> int:
    """Bytes up to and including the last newline."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - _LOOK_BACK_BYTES)
    newline = os.pread(descriptor, size - start, start).rfind(b"\n")
    # No newline far and wide: no file of ours; leave it alone.
    return start + newline + 1 if newline >= 0 or start == 0 else size
