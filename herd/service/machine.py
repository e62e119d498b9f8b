"""Describes the machine, because a measured rate is meaningless without its hardware."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import psutil

from herd.service import hardware

PACKAGES = ("torch", "numpy", "pyzmq", "ale-py", "herd-rl")


def describe_hardware() -> dict[str, object]:
    """Return processor, cores, memory and versions, for JSON. Does not import the packages."""
    return {
        "processor": _processor_name(),
        "usable_cores": hardware.usable_cpus(),
        "bfloat16_is_faster": hardware.cpu_gains_from_bfloat16(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_average_1_minute": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
    }


def _processor_name() -> str:
    try:
        lines = hardware.CPU_INFO.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
