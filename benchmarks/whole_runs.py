"""One ``herd train`` as a process of its own, whose directory is whole or not there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STOP_SECONDS = 90.0
"""For a run that is told to stop: its checkpoint, its report and its picture, on a machine that is busy."""


def train_whole(directory: Path, experiment: Path, words: Sequence[str], *, limit_seconds: float) -> None:
    """Run ``herd train`` under another name, and rename the directory once it ended well; what it says is in ``<directory>.out``.

    Raises:
        SystemExit: it failed, or took longer than ``limit_seconds``; one line that names the file to look at.
    """
    partial = directory.with_name(directory.name + ".partial")
    if partial.is_dir():
        shutil.rmtree(partial)  # of a benchmark that was interrupted
    partial.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "herd.cli.main", "train", str(experiment), "--run_dir", str(partial), *words]
    with directory.with_name(directory.name + ".out").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            code = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"{directory.name} did not end within {limit_seconds:g} s: see {output.name}") from None
        finally:
            _stop(process)
    if code:
        raise SystemExit(f"{directory.name} ended with exit code {code}: see {output.name}")
    partial.rename(directory)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Take the run down with this command, whatever ends it; nothing to do where the run ended by itself."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
