"""Atomic writes of a run's files, even with a power failure. A failed write leaves nothing behind."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TEMPORARY = ".tmp"
"""Suffix of files that are being written; readers ignore them."""
_LOOK_BACK_BYTES = 1 << 16
"""Longest incomplete line: a point of the curve with 57 tasks takes 6 kB."""


def replace_file(path: Path, content: str | Iterable[bytes | memoryview]) -> None:
    """Replace the contents of ``path`` by a text or by parts; they are on disk when this returns. Only one process may write a file.

    Raises:
        OSError: the file cannot be written; its previous contents are unchanged.

    """
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        # Follows no symbolic link that another user may have created.
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            file.writelines([content.encode()] if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    flush_directory(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append one line, after removing an incomplete line of a killed process at the end.

    Raises:
        OSError: the line cannot be written; no part of it remains.

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
    """Flush the names in a folder to disk; flushing the files does not include their names."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``. On a full disk, a write silently stores the part that fits, and only the next call fails."""
    while data:
        data = data[os.write(descriptor, data) :]


def _end_of_lines(descriptor: int) -> int:
    """Return the number of bytes up to and including the last newline."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - _LOOK_BACK_BYTES)
    newline = os.pread(descriptor, size - start, start).rfind(b"\n")
    # No newline within reach: not a file of ours, so it is left alone.
    return start + newline + 1 if newline >= 0 or start == 0 else size
