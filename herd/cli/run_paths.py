"""Is this a run? Answered before torch is loaded, so that a mistyped directory costs no second."""

from __future__ import annotations

from pathlib import Path

from herd.cli.errors import CommandError, did_you_mean
from herd.supervisor.run_directory import CONFIG
from herd.supervisor.summary import CHECKPOINTS

RUNS = Path("runs")


def existing_run(directory: Path) -> Path:
    """Check that ``directory`` holds a run.

    Raises:
        CommandError: no such directory, or no run in it.

    """
    if not directory.is_dir():
        siblings = [str(path) for path in sorted(directory.parent.glob("*")) if path.is_dir()] if directory.parent.is_dir() else []
        raise CommandError(f"{directory}: no such run{did_you_mean(str(directory), siblings)}")
    if not (directory / CONFIG).is_file():
        raise CommandError(f"{directory}: not a run: it holds no {CONFIG}")
    return directory


def run_with_checkpoint(directory: Path) -> Path:
    """Check that ``directory`` holds a run with at least one checkpoint.

    Raises:
        CommandError: as ``existing_run``, or no checkpoint yet.

    """
    existing_run(directory)
    if not any((directory / CHECKPOINTS).glob("[0-9]*")):
        raise CommandError(f"{directory}: holds no checkpoint yet")
    return directory
