"""The memory that is still available to this process and its children."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")
_MEMORY_FILES = (
    # (folder, limit, usage, the name in memory.stat of what the kernel drops first)
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def available_memory() -> int:
    """Return the available bytes: those of the machine, including free swap, or of the container's limit (cgroup v2 or v1) if fewer."""
    left = psutil.virtual_memory().available + psutil.swap_memory().free
    for folder, limit, usage, droppable in _MEMORY_FILES:
        with suppress(OSError, ValueError):  # no such cgroup, or "max": no limit
            most, used = _number(CGROUP / folder / limit), _number(CGROUP / folder / usage)
            left = min(left, max(0, most - used + _statistic(CGROUP / folder / "memory.stat", droppable)))
    return left


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
