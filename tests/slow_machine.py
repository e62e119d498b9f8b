"""``make test-slow``: a pytest plugin that slows this machine down, to find tests that fail on slow machines.

A control group limits each worker and the processes of its tests to SLOW_CORES cores (a half), while SLOW_BUSY busy processes (one for
each core) compete with them. Needs root, and a writable cgroup hierarchy of version 1 (``/sys/fs/cgroup/cpu``) or 2.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

os.environ.setdefault("TEST_PATIENCE", "5")

CORES = float(os.environ.get("SLOW_CORES", "0.5"))
BUSY = int(os.environ.get("SLOW_BUSY", os.cpu_count() or 1))
PERIOD_MICROSECONDS = 100_000
"""The kernel's default. A group that has used up its share pauses until the period ends."""
MOUNTED = Path("/sys/fs/cgroup")

_busy = pytest.StashKey[list[subprocess.Popen[bytes]]]()
_group = pytest.StashKey[Path]()


def make_group(name: str, cores: float, *, mounted: Path = MOUNTED) -> Path:
    """Make a control group with this share of a core; raises OSError if that is not possible."""
    quota = str(round(cores * PERIOD_MICROSECONDS))
    if (mounted / "cgroup.controllers").exists():  # cgroup version 2
        with contextlib.suppress(OSError):  # if this is refused, the next line raises the error
            (mounted / "cgroup.subtree_control").write_text("+cpu")
        group = mounted / name
        group.mkdir()
        (group / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")
    else:
        group = mounted / "cpu" / name
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
        (group / "cpu.cfs_quota_us").write_text(quota)
    return group


def leave_group(group: Path) -> None:
    """Leave the group and remove it; a process that was just killed may need a moment to leave."""
    (group.parent / "cgroup.procs").write_text(str(os.getpid()))
    for _ in range(100):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


def pytest_configure(config: pytest.Config) -> None:
    """The controller starts the busy processes, and each worker enters its group. Without workers, one process does both."""
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        spin = [sys.executable, "-c", "while True: pass"]
        config.stash[_busy] = [subprocess.Popen(spin) for _ in range(BUSY)]
    if is_worker or not config.getoption("numprocesses", None):
        group = make_group(f"herd-test-{os.getpid()}", CORES)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        config.stash[_group] = group


def pytest_unconfigure(config: pytest.Config) -> None:
    for process in config.stash.get(_busy, []):
        process.kill()
        process.wait()
    if group := config.stash.get(_group, None):
        leave_group(group)
