"""Trains the runs of the DiCE comparison, one ``herd train`` after the other. A complete run is kept."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.whole_runs import train_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
EXPERIMENT = EXPERIMENTS / "dice-deceptive.yaml"


def run_directory(runs: Path, ablation: str, seed: int) -> Path:
    return runs / f"{ablation}-seed{seed}"


def train_all(
    runs: Path,
    ablations: Sequence[str],
    seeds: Sequence[int],
    overrides: Sequence[str],
    *,
    limit_seconds: float,
    experiment: Path = EXPERIMENT,
) -> None:
    """Train missing runs. All ablations of a seed come before the next seed, so that existing runs can always be compared."""
    wanted = [(ablation, seed) for seed in seeds for ablation in ablations]
    for number, (ablation, seed) in enumerate(wanted, start=1):
        directory = run_directory(runs, ablation, seed)
        if directory.is_dir():
            print(f"{number} of {len(wanted)}: {directory.name} is there", flush=True)
            continue
        started = time.monotonic()
        train(directory, ablation, seed, overrides, limit_seconds=limit_seconds, experiment=experiment)
        print(f"{number} of {len(wanted)}: {directory.name} took {time.monotonic() - started:.0f} s", flush=True)


def train(
    directory: Path, ablation: str, seed: int, overrides: Sequence[str], *, limit_seconds: float, experiment: Path = EXPERIMENT
) -> None:
    """Train one run of the experiment. Its directory appears when the run is complete."""
    words = ["--name", directory.name, "--seed", str(seed), "--loss.ablation", ablation, *overrides]
    train_whole(directory, experiment, words, limit_seconds=limit_seconds)
