"""Tests whether copying helps: compares a population with its control, the same draws without copying.

``python -m benchmarks.population --output DIR`` trains ``experiments/pbt-quick.yaml`` (or ``--experiment``) with ``population.strategy``
pbt and none and every seed, one run after the other, in ``DIR/runs``; complete runs are not trained again. It prints a table and writes
``DIR/population.json``. A seed determines the draws, so the runs of one seed are a pair, and differences are taken within pairs. Intervals
are 95 % bootstrap intervals over seeds. Words after the options are passed to ``herd train``.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

import numpy as np

from benchmarks.intervals import Estimate, estimate, estimates_as_json, print_estimates, windowed
from benchmarks.whole_runs import train_missing
from herd.config.loading import load_settings
from herd.run.paths import agent_directories
from herd.service.host import describe_hardware
from herd.view.plots.history import read_run

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
STRATEGIES = ("pbt", "none")
FIRST_SEED = 101
"""Seeds from 101 on were not used for tuning."""
MIN_SEEDS = 3
WINDOWS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--experiment", default="pbt-quick")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--limit-seconds", type=float, default=3600.0, help="of one run")
    options, overrides = parser.parse_known_args()
    if options.seeds < MIN_SEEDS:
        parser.error(f"--seeds must be at least {MIN_SEEDS}: the bootstrap of fewer gives intervals that say nothing")
    # So that SIGTERM also ends the current run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    experiment = EXPERIMENTS / f"{options.experiment}.yaml"
    total = float(load_settings([experiment], overrides, {}).stop.env_frames or 0)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    measured: dict[str, list[dict[str, float]]] = {strategy: [] for strategy in STRATEGIES}
    for seed in seeds:
        for strategy in STRATEGIES:
            directory = options.output / "runs" / f"{strategy}-seed{seed}"
            # Both have the same name, which does not affect the draws but is in the run's files.
            words = ["--name", options.experiment, "--seed", str(seed), "--population.strategy", strategy, *overrides]
            train_missing(directory, experiment, words, limit_seconds=options.limit_seconds)
            measured[strategy].append(measure(directory, total))
    estimates = compare(measured)
    print_estimates(estimates)
    found = {
        "experiment": options.experiment,
        "overrides": overrides,
        "seeds": list(seeds),
        "hardware": describe_hardware(),
        "measured": measured,
        "estimates": estimates_as_json(estimates),
    }
    (options.output / "population.json").write_text(json.dumps(found, indent=1) + "\n")


def measure(run_dir: Path, total: float) -> dict[str, float]:
    """Return mean returns in the last window and over the run: of the best member in each window, and of all members.

    The best member of the control is chosen in the same way as that of the population: anew in each window.
    """
    curves = []
    for directory in agent_directories(run_dir):
        history = read_run(directory)
        returns = np.mean(np.stack(list(history.episode_returns.values())), axis=0)  # NaN before each task has finished a game
        curves.append(windowed(history.env_frames, returns, total=total, windows=WINDOWS))
    members = np.stack(curves)
    best, mean = members.max(axis=0), members.mean(axis=0)
    return {
        "final of the best": float(best[-1]),
        "whole run of the best": float(best.mean()),
        "final of all": float(mean[-1]),
        "whole run of all": float(mean.mean()),
    }


def compare(measured: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, Estimate]]:
    """For each figure, return both strategies and the effect of copying, seed by seed."""
    names = list(measured["pbt"][0])
    return {
        name: {
            **{strategy: estimate([run[name] for run in measured[strategy]]) for strategy in STRATEGIES},
            "difference": estimate([run[name] - control[name] for run, control in zip(measured["pbt"], measured["none"], strict=True)]),
        }
        for name in names
    }


if __name__ == "__main__":
    main()
