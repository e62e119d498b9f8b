"""The memory and the number of threads that are still available to this process and its children."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")
PID_MAX = Path("/proc/sys/kernel/pid_max")
_MEMORY_FILES = (
    # (folder, limit, usage, the name in memory.stat of what the kernel drops first)
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
_TASK_FILES = ("", "pids")


def available_memory() -> int:
    """Return the available bytes: those of the machine, including free swap, or of the container's limit (cgroup v2 or v1) if fewer."""
    left = psutil.virtual_memory().available + psutil.swap_memory().free
    for folder, limit, usage, droppable in _MEMORY_FILES:
        with suppress(OSError, ValueError):  # no such cgroup, or "max": no limit
            most, used = _number(CGROUP / folder / limit), _number(CGROUP / folder / usage)
            left = min(left, max(0, most - used + _statistic(CGROUP / folder / "memory.stat", droppable)))
    return left


def available_tasks() -> int | None:
    """Return the number of processes and threads that may still be started; None if there is no limit."""
    limits = []
    with suppress(OSError, ValueError):
        limits.append(_number(PID_MAX))
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:  # the limit does not apply to root
        limits.append(soft)
    for folder in _TASK_FILES:
        with suppress(OSError, ValueError):
            limits.append(_number(CGROUP / folder / "pids.max") - _number(CGROUP / folder / "pids.current"))
    return max(0, min(limits)) if limits else None


def _number(file: Path) -> int:
    return int(file.read_text())


def _statistic(file: Path, name: str) -> int:
    """Return a value of memory.stat; 0 if it is missing."""
    with suppress(OSError, ValueError):
        for line in file.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
