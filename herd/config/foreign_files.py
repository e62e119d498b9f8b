"""Read files that another user may have written: regular files only, and only up to a size limit.

Reading a named pipe could block forever, and a sparse file of a terabyte costs its writer nothing. So the type and size of an open file
are checked before it is read.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import io
    from pathlib import Path

MAX_JSON_BYTES = 256 << 20
"""Size limit of a state in JSON: 65,536 accounts of a learner take 4 MB, 500,000 entries of a bandit 20 MB."""


def open_file(path: Path, max_bytes: int) -> io.BufferedReader:
    """Open a regular file for reading. Never waits for a writer.

    Raises:
        OSError: the file cannot be read, is not a regular file (``EINVAL``), or is larger than ``max_bytes`` (``EFBIG``).

    """
    # Non-blocking, so that opening a pipe without a writer returns at once. It has no effect on regular files.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        _check(os.fstat(descriptor), path, max_bytes)
    except OSError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def _check(found: os.stat_result, path: Path, max_bytes: int) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    if found.st_size > max_bytes:
        raise OSError(errno.EFBIG, f"Larger than {max_bytes} bytes", str(path))


def read_file(path: Path, max_bytes: int) -> bytearray:
    """Return the contents of a regular file.

    Raises:
        OSError: as `open_file`.

    """
    with open_file(path, max_bytes) as file:
        data = bytearray(os.fstat(file.fileno()).st_size)
        del data[file.readinto(data) :]
        return data


def parse_json(text: str | bytes | bytearray) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON or not UTF-8, is nested too deeply, or holds an integer of thousands of digits.

    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Return the value in a JSON file.

    Raises:
        OSError: as `read_file`.
        ValueError: as `parse_json`.

    """
    return parse_json(read_file(path, max_bytes))
