"""Trains the runs of benchmarks, whose directories appear only when they are complete."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from herd.sweeps.whole_runs import Trial, WholeRun

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def train_whole(directory: Path, experiment: Path, words: Sequence[str], *, limit_seconds: float, resume: bool = False) -> None:
    """Train a run in ``directory`` as `WholeRun` does, and wait.

    Raises:
        SystemExit: it failed, or took longer than ``limit_seconds``; one line names the file to look at.
    """
    run = WholeRun(Trial(directory, (str(experiment), *words)), resume=resume)
    try:
        code = run.wait(limit_seconds)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{directory.name} did not end within {limit_seconds:g} s: see {run.trial.output}") from None
    finally:
        run.stop()
    if code:
        raise SystemExit(f"{directory.name} ended with exit code {code}: see {run.trial.output}")


def train_missing(directory: Path, experiment: Path, words: Sequence[str], *, limit_seconds: float) -> None:
    """Train a run as `train_whole` does and print how long it took, unless its directory exists."""
    if directory.is_dir():
        return
    started = time.monotonic()
    train_whole(directory, experiment, words, limit_seconds=limit_seconds)
    print(f"{directory.name} took {time.monotonic() - started:.0f} s", flush=True)
