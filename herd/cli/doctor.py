"""``herd doctor``: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from herd.cli.options import OneLineParser
from herd.components.suites import DEFAULT_SUITE, SUITES, missing_packages, suite_named
from herd.service.host import OtherPrograms, available_memory, usable_cpus

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from herd.components.suites import Suite


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="herd doctor",
        description="Checks that this machine is ready to train. The exit code is 1 if something required is missing.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(argv: Sequence[str]) -> int:
    """Check this machine; returns 1 if something required is missing."""
    options = _parser().parse_args(argv)

    checks = all_checks()
    missing = [check for check in checks if check.required and not check.ok]
    if options.json:
        print(json.dumps({"ok": not missing, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        _print_table(checks, missing)
    return 1 if missing else 0


def _print_table(checks: Sequence[Check], missing: Sequence[Check]) -> None:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from herd.view.terminal import table_console  # noqa: PLC0415

    table = Table("", "what", "found", "what to do", box=None, pad_edge=False)
    for check in checks:
        mark = (
            Text("OK", style="green") if check.ok else Text("MISSING", style="red") if check.required else Text("optional", style="yellow")
        )
        table.add_row(mark, check.name, Text(check.found), Text("" if check.ok else check.advice))
    console = table_console()
    console.print(table, highlight=False)
    verdict = "nothing that training needs is missing" if not missing else f"missing: {', '.join(check.name for check in missing)}"
    console.print(f"\n{verdict}", highlight=False)


_GIB = 2**30
_NEEDED_MEMORY = 3 * _GIB
"""The learner with torch takes about 1.2 GiB at the default batch, each of two actors 0.6 GiB, the parameter server 0.1 GiB."""
_NEEDED_DISK = 1 * _GIB
"""A run takes two checkpoints of up to 60 MB, logs and a curve; the rest is for several runs."""
_COMMAND_SECONDS = 10.0
_CPU_TORCH = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
_LOAD_SECONDS = 0.5
"""Seconds over which the load by other programs is measured."""

# Package -> (needed by `herd train`, how to get it).
_PACKAGES = {
    "numpy": (True, "pip install herd-rl"),
    "torch": (True, "pip install 'herd-rl[learner]'"),
    "lz4": (False, "actor.compression lz4: pip install 'herd-rl[learner]'"),
    "zstandard": (False, "actor.compression zstd: pip install 'herd-rl[learner]'"),
    "matplotlib": (False, "curves: pip install 'herd-rl[plot]'"),
    "imageio": (False, "videos: pip install 'herd-rl[plot]'"),
    "imageio-ffmpeg": (False, "mp4 videos: pip install 'herd-rl[plot]'"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    name: str
    ok: bool
    found: str
    advice: str = ""
    """What to do if it is not ok."""
    required: bool = True
    """Whether ``herd train`` needs this with its default settings."""


def all_checks() -> list[Check]:
    """Run every check, the machine first."""
    machine = (check_python(), check_cpus(), check_other_programs(), check_memory(), check_disk(), check_gpu())
    return [*machine, *check_packages(), *check_suites()]


def check_python() -> Check:
    """Python 3.11 or newer."""
    return Check(
        "python", sys.version_info >= (3, 11), f"{platform.python_version()} on {platform.platform()}", "install Python 3.11 or newer"
    )


def check_cpus() -> Check:
    """CPUs within affinity and container limits: at least one for the learner and one for actors."""
    cpus, present = usable_cpus(), os.cpu_count()
    return Check("CPUs", cpus >= 2, f"{cpus} usable of {present}", "training is slow: give the container at least two CPUs", required=False)


def check_other_programs() -> Check:
    """Whether other programs leave the cores to training."""
    programs = OtherPrograms()
    time.sleep(_LOAD_SECONDS)
    found = programs.line()
    return Check("other programs", not found, found or "leave the cores free", "training is slower while they run", required=False)


def check_memory() -> Check:
    """Memory that is available to new processes."""
    free = available_memory()
    return Check(
        "memory", free >= _NEEDED_MEMORY, f"{free / _GIB:.1f} GiB available", f"free {_NEEDED_MEMORY / _GIB:.0f} GiB, or lower actor.count"
    )


def check_disk() -> Check:
    """Disk space in the folder of runs/."""
    free = shutil.disk_usage(Path.cwd()).free
    return Check("disk", free >= _NEEDED_DISK, f"{free / _GIB:.1f} GiB free here", "free some space, or use --run_dir elsewhere")


def check_gpu() -> Check:
    """A GPU that both the driver and torch can see."""
    advice = f"nothing: the learner runs on the CPU{_cpu_build()}"
    program = shutil.which("nvidia-smi")
    if program is None:
        return Check("GPU", ok=False, found="no nvidia-smi", advice=advice, required=False)
    names = _output([program, "--query-gpu=name,memory.total", "--format=csv,noheader"])
    if not names:
        return Check("GPU", ok=False, found="nvidia-smi finds none", advice=advice, required=False)
    found = "; ".join(names.splitlines())
    if find_spec("torch") is None:
        return Check("GPU", ok=False, found=found, advice="torch is not installed", required=False)
    import torch  # noqa: PLC0415  takes a second, so only if there is a GPU

    usable = torch.cuda.is_available()
    return Check("GPU", usable, found, f"torch {torch.__version__} cannot use it: install a CUDA build", required=False)


def _cpu_build() -> str:
    """Return how to avoid the CUDA libraries that PyPI's torch brings, if this machine has them or would get them."""
    if find_spec("torch") is None:
        return f"; install its build of torch first: {_CPU_TORCH} (1.6 instead of 6.1 GB)"
    return f"; CUDA's libraries take 4.5 GB in vain: {_CPU_TORCH} --force-reinstall" if find_spec("nvidia") is not None else ""


def check_packages() -> list[Check]:
    """Every package that a part of a run uses, with its version."""
    checks = []
    for package, (required, advice) in _PACKAGES.items():
        try:
            found, ok = version(package), True
        except PackageNotFoundError:
            found, ok = "not installed", False
        checks.append(Check(package, ok, found, advice, required))
    return checks


def check_suites() -> list[Check]:
    """Every installed suite of environments with the packages that it needs, and the suites that cannot be loaded."""
    usable = [_check_suite(name, suite_named(name)) for name in SUITES.parts]
    return usable + [
        Check(f"suite {name}", ok=False, found="broken", advice=reason, required=False) for name, reason in SUITES.broken.items()
    ]


def _check_suite(name: str, suite: Suite) -> Check:
    required = name == DEFAULT_SUITE
    if (missing := missing_packages(suite)) is not None:
        return Check(f"suite {name}", ok=False, found="packages are missing", advice=missing, required=required)
    found = ", ".join(f"{package} {_version_of(package)}" for package in suite.packages) or "needs no packages"
    return Check(f"suite {name}", ok=True, found=found, required=required)


def _version_of(module: str) -> str:
    distributions = packages_distributions().get(module, [module])
    try:
        return version(distributions[0])
    except PackageNotFoundError:
        return "unknown version"


def _output(command: list[str]) -> str:
    """Return the standard output of a short command; empty if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
