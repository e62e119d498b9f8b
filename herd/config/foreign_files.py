"""Files that somebody else may have written: read whole and within bounds, from regular files only.

A named pipe would be waited for without end, and a sparse file of a terabyte costs its writer nothing. So what is opened is looked at
before it is read, and nothing is allocated beyond a bound.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

MAX_JSON_BYTES = 256 << 20
"""Of a state in JSON: 65,536 accounts of a learner take 4 MB, 500,000 entries of a bandit 20 MB."""


def read_file(path: Path, max_bytes: int) -> bytearray:
    """Return the contents of a regular file; never waits for a writer.

    Raises:
        OSError: it cannot be read, is no regular file (``EINVAL``), or is larger than ``max_bytes`` (``EFBIG``).

    """
    # Non-blocking: a pipe without a writer opens at once. Without effect on regular files.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "rb") as file:
        found = os.fstat(file.fileno())
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        if found.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"Larger than {max_bytes} bytes", str(path))
        data = bytearray(found.st_size)
        del data[file.readinto(data) :]
        return data


def parse_json(text: str | bytes | bytearray) -> Any:
    """Return what a JSON text says.

    Raises:
        ValueError: not JSON, not UTF-8, nested deeper than can be read, or an integer of thousands of digits.

    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Return what a file of JSON says.

    Raises:
        OSError: as `read_file`.
        ValueError: as `parse_json`.

    """
    return parse_json(read_file(path, max_bytes))
