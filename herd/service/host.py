"""The machine that this process runs on: the CPUs and the memory that are available to it, and a description for reports.

Limits of a container (cgroup v2 or v1) count as those of the machine.
"""

from __future__ import annotations

import math
import os
import platform
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import psutil

CGROUP = Path("/sys/fs/cgroup")
Precision = Literal["float32", "bfloat16"]

CGROUP_V2_LIMIT = CGROUP / "cpu.max"
CGROUP_V1_QUOTA = CGROUP / "cpu/cpu.cfs_quota_us"
CGROUP_V1_PERIOD = CGROUP / "cpu/cpu.cfs_period_us"
CPU_INFO = Path("/proc/cpuinfo")
BF16_FLAGS = frozenset({"amx_bf16", "bf16"})
"""x86's tile units, and Arm."""
BF16_VECTOR_FLAG = "avx512_bf16"
BF16_VECTOR_VENDOR = "AuthenticAMD"
"""CPU families whose bfloat16 vector instructions double the rate. With Intel's, the shallow network learns 1.4 times slower."""
_MEMORY_FILES = (
    # (folder, limit, usage, the name in memory.stat of what the kernel drops first)
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
_MAX_SHARE_OF_OTHERS = 0.25
"""Share of the cores that other programs may use unnoticed: with half a core of two, training is about a quarter slower."""
PACKAGES = ("torch", "numpy", "pyzmq", "ale-py", "herd-rl")


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use: its affinity, or its container's quota if that is smaller (rounded up)."""
    affinity = len(os.sched_getaffinity(0))
    quota = _cgroup_cpus()
    return affinity if quota is None else max(1, min(affinity, math.ceil(quota)))


def pin_to_cpu(number: int) -> int:
    """Pin the calling thread, and threads that it starts later, to a CPU of its affinity, chosen round-robin; returns the CPU."""
    cpus = sorted(os.sched_getaffinity(0))
    cpu = cpus[number % len(cpus)]
    os.sched_setaffinity(0, {cpu})
    return cpu


def cpu_gains_from_bfloat16() -> bool:
    """Return whether the processor multiplies bfloat16 faster than float32. Having the instructions is not sufficient."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        return False
    values = [(name.strip(), value.split()) for name, _, value in (line.partition(":") for line in lines)]
    flags = {flag for name, words in values if name in ("flags", "Features") for flag in words}
    vendors = {word for name, words in values if name == "vendor_id" for word in words}
    return bool(BF16_FLAGS & flags) or (BF16_VECTOR_FLAG in flags and BF16_VECTOR_VENDOR in vendors)


def choose_precision(wanted: Precision | Literal["auto"], *, gains_from_bfloat16: bool) -> Precision:
    """Resolve a precision setting: ``auto`` uses bfloat16 if it is faster."""
    if wanted == "auto":
        return "bfloat16" if gains_from_bfloat16 else "float32"
    return wanted


def _cgroup_cpus() -> float | None:
    try:
        quota, period = CGROUP_V2_LIMIT.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        quota_us = int(CGROUP_V1_QUOTA.read_text())
        return None if quota_us <= 0 else quota_us / int(CGROUP_V1_PERIOD.read_text())
    except (OSError, ValueError):
        return None


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


class OtherPrograms:
    """Measures how many cores the programs keep busy that were not started by this process."""

    def __init__(self) -> None:
        self._before = self._read()

    def line(self) -> str:
        """``other programs use 1.9 of 2 cores``, on average since the last call (or since construction).

        Empty if they use less than a quarter of the cores. In a container these are the cores of its host.
        """
        before, now = self._before, self._read()
        self._before = now
        at, busy, own = (new - old for new, old in zip(now, before, strict=True))
        cores = psutil.cpu_count() or 1
        others = min(cores, max(0.0, busy - own) / at) if at > 0 else 0.0
        return f"other programs use {others:.1f} of {cores} cores" if others >= _MAX_SHARE_OF_OTHERS * cores else ""

    @staticmethod
    def _read() -> tuple[float, float, float]:
        """Return the time, and the processor seconds of all programs and of this process and its descendants."""
        total = psutil.cpu_times()
        # On Linux, `user` includes the time of virtual machines, and `nice` their low-priority time.
        busy = sum(getattr(total, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))
        own = 0.0
        root = psutil.Process()
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):  # it has just ended; its parent has its time when it has waited for it
                own += sum(process.cpu_times()[:4])  # user, system, and those of children that have ended
        return time.monotonic(), busy, own


def describe_hardware() -> dict[str, object]:
    """Return processor, cores, memory and versions, for JSON. Does not import the packages."""
    return {
        "processor": _processor_name(),
        "usable_cores": usable_cpus(),
        "bfloat16_is_faster": cpu_gains_from_bfloat16(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_average_1_minute": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
    }


def _processor_name() -> str:
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
