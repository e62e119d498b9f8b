"""Disks that really fail: a full file system, a read-only one, and a limit on the size of files."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def no_space_beyond(num_bytes: int, pid: int = 0) -> Iterator[None]:
    """Limit the size of files that a process (0: this one) may write; beyond it the process gets an OSError. Needs no privilege."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # the process may have ended meanwhile
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def small_disk(folder: Path, num_bytes: int) -> Iterator[Path]:
    """Mount a file system of this size on ``folder``. Skips the test if this process may not mount."""
    folder.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        _unmount(folder)


@contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """Make ``folder`` read-only, even for root; files that are already open stay writable. Skips the test if this cannot be done."""
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,bind,ro", str(folder))
        yield folder
    finally:
        _unmount(folder)


def fill(disk: Path) -> Path:
    """Use up the space of a small disk; returns the file that occupies it."""
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
    # The unmount is lazy, because a process that is being killed may still hold a file open.
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=True)
