"""Disks that really fail: a file system without space, one that may only be read, a process that may not write further."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def no_space_beyond(num_bytes: int, pid: int = 0) -> Iterator[None]:
    """Let a process (0: this one) write no file beyond this size: it then gets an OSError, as from a full disk. Needs no privilege."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it may have ended meanwhile
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def small_disk(folder: Path, num_bytes: int) -> Iterator[Path]:
    """Mount a file system of this size on ``folder``; skips the test where this process may not."""
    folder.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        _unmount(folder)


@contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """Let nobody write to ``folder`` any more, root included; files that are open stay so. Skips the test where this cannot be done."""
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,bind,ro", str(folder))
        yield folder
    finally:
        _unmount(folder)


def fill(disk: Path) -> Path:
    """Take all space that is left on a small disk; returns the file that holds it."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError:
                continue
    return ballast


def _mount(*words: str) -> None:
    try:
        subprocess.run(["mount", *words], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this process may not mount: {error.stderr.strip()}")


def _unmount(folder: Path) -> None:
    # Lazily: a process that is being killed may still hold a file open.
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=True)
