"""Reading files that other users may have written, and writing files so that a power failure cannot damage them.

Reading takes regular files only, up to a size limit: opening a named pipe could block forever, and a sparse file of a terabyte costs its
writer nothing. Writing is atomic, and a write that fails leaves nothing behind.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import io
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_T = TypeVar("_T")

MAX_JOURNAL_BYTES = 16 << 30
"""Size limit of a file with one JSON value per line. Readers hold one line at a time."""
MAX_LINE_BYTES = 16 << 20
"""Size limit of one of its lines. A sparse file can be one line that is larger than the memory."""
TEMPORARY = ".tmp"
"""Suffix of files that are being written; readers ignore them."""
_USUAL_LINE_BYTES = 1 << 16
"""Most lines are shorter: a point of the curve with 57 tasks takes 6 kB."""
_MAX_DIGITS = 40
"""Longest integer in JSON: the state of numpy's random generator has 128 bits, 39 digits."""
MAX_JSON_BYTES = 256 << 20
"""Size limit of a state in JSON: 65,536 accounts of a learner take 4 MB, 500,000 entries of a bandit 20 MB."""
_SEALED = re.compile(rb'\{"sha256":"([0-9a-f]{64})","state":(.*)\}\n', re.DOTALL)


_UNUSABLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError)
"""What parsers raise for a value that is not what they expect."""


class FileError(Exception):
    """A file cannot be read, or does not hold what it should; one line that names it. Commands print it and end with exit code 2."""


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
        ValueError: the text is not JSON or not UTF-8, is nested too deeply, or holds an integer of more than 40 digits.

    """
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _integer(digits: str) -> int:
    """Longer integers may not fit into a float, and those of thousands of digits cannot be printed; no program of Herd writes them."""
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Return the value in a JSON file.

    Raises:
        OSError: as `read_file`.
        ValueError: as `parse_json`.

    """
    return parse_json(read_file(path, max_bytes))


def read_record(path: Path, what: str, parse: Callable[[Any], _T]) -> _T:
    """Return the parsed value of a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        FileError: the file cannot be read, or is not ``what``.

    """
    try:
        return parse(read_json(path))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    except _UNUSABLE as error:
        raise FileError(f"{path} is not {what}: {_short(error)}") from error


def mapping(value: Any) -> dict[str, Any]:
    """Return a JSON value that must be a mapping, for `read_record`; otherwise raise ``ValueError``."""
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__} instead of a mapping")  # noqa: TRY004  as other wrong values
    return value


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def sealed(state: str) -> str:
    """Return a state in JSON with its SHA-256, as the contents of a file for `read_sealed`."""
    return f'{{"sha256":"{hashlib.sha256(state.encode()).hexdigest()}","state":{state}}}\n'


def read_sealed(path: Path) -> bytes:
    """Return the JSON text of a state that `sealed` has protected against any change.

    Raises:
        FileNotFoundError: there is no such file.
        FileError: it cannot be read, or is damaged.

    """
    try:
        found = _SEALED.fullmatch(read_file(path, MAX_JSON_BYTES))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    if found is None:
        raise FileError(f"{path}: is incomplete")
    if hashlib.sha256(found[2]).hexdigest().encode() != found[1]:
        raise FileError(f"{path}: is damaged: its contents do not match their digest")
    return bytes(found[2])


def read_lines(path: Path, what: str, parse: Callable[[Any], _T]) -> Iterator[_T]:
    """Yield the parsed values of a journal, a file with one JSON value per line, in order and with one in memory at a time.

    A last line without its end is skipped: it is being written, or its writer was killed (or, after a power failure, it may be zeros), and
    `append_line` will remove it.

    Raises:
        FileError: the file cannot be read, or another line is not ``what``.

    """
    try:
        with open_file(path, MAX_JOURNAL_BYTES) as file:
            lines = iter(lambda: file.readline(MAX_LINE_BYTES), b"")
            for number, line in enumerate(lines, start=1):
                if len(line) == MAX_LINE_BYTES:
                    raise FileError(f"{path}, line {number}, is not {what}: longer than {MAX_LINE_BYTES} bytes")
                if not line.endswith(b"\n"):
                    return
                try:
                    value = parse(parse_json(line))
                except _UNUSABLE as error:
                    raise FileError(f"{path}, line {number}, is not {what}: {_short(error)}") from error
                yield value
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error


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


def make_folder(path: Path) -> None:
    """Create a folder, and the folders above it where they are missing; a power failure cannot remove their names afterwards.

    Raises:
        OSError: a folder cannot be created.

    """
    if not path.parent.is_dir():
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    # Also if it exists: a process that was killed may have created it. A folder inside it is created only after this.
    flush_directory(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append one line, after removing an incomplete line of a killed process at the end.

    Raises:
        OSError: the line cannot be written; no part of it remains.

    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
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
    for reach in (_USUAL_LINE_BYTES, MAX_LINE_BYTES):
        start = max(0, size - reach)
        newline = os.pread(descriptor, size - start, start).rfind(b"\n")
        if newline >= 0 or start == 0:
            return start + newline + 1
    return size  # not a file of ours, so it is left alone
