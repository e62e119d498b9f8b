"""The training runs of the DiCE comparison: one ``herd train`` after the other, each kept once it is whole."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

EXPERIMENT = Path(__file__).parents[1] / "experiments" / "dice-deceptive.yaml"
STOP_SECONDS = 90.0
"""For a run that is told to stop: its checkpoint, its report and its picture, on a machine that is busy."""


def run_directory(runs: Path, ablation: str, seed: int) -> Path:
    return runs / f"{ablation}-seed{seed}"


def train_all(runs: Path, ablations: Sequence[str], seeds: Sequence[int], overrides: Sequence[str], *, limit_seconds: float) -> None:
    """Train what is not there yet, all ablations of a seed before the next seed, so that whatever exists can be compared."""
    wanted = [(ablation, seed) for seed in seeds for ablation in ablations]
    for number, (ablation, seed) in enumerate(wanted, start=1):
        directory = run_directory(runs, ablation, seed)
        if directory.is_dir():
            print(f"{number} of {len(wanted)}: {directory.name} is there", flush=True)
            continue
        started = time.monotonic()
        train(directory, ablation, seed, overrides, limit_seconds=limit_seconds)
        print(f"{number} of {len(wanted)}: {directory.name} took {time.monotonic() - started:.0f} s", flush=True)


def train(directory: Path, ablation: str, seed: int, overrides: Sequence[str], *, limit_seconds: float) -> None:
    """Run ``herd train`` under another name, and rename the directory once it ended well: a directory is whole or not there."""
    partial = directory.with_name(directory.name + ".partial")
    if partial.is_dir():
        shutil.rmtree(partial)  # of a comparison that was interrupted
    partial.parent.mkdir(parents=True, exist_ok=True)
    words = ["train", str(EXPERIMENT), "--run_dir", str(partial), "--name", directory.name, "--seed", str(seed)]
    command = [sys.executable, "-m", "herd.cli.main", *words, "--loss.ablation", ablation, *overrides]
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
