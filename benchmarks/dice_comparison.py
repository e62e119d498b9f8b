"""Tests whether DiCE's bandit helps in a game with a deceptive safe corner: ``python -m benchmarks.dice_comparison --output DIR``.

It trains ``experiments/dice-deceptive.yaml`` (or ``--experiment``) in real processes with every ablation and seed, one run after the other,
in ``DIR/runs``; complete runs are not trained again. Then it plays every last checkpoint, reads every learning curve, prints a table, and
writes ``DIR/comparison.json`` and ``DIR/comparison.png``. Intervals are 95 % bootstrap intervals over seeds. The seeds are fixed in advance
and were not used for tuning.

Words after the options, such as ``--stop.env_frames 50000``, are passed to ``herd train``.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.dice_picture import draw
from benchmarks.dice_runs import EXPERIMENTS, run_directory, train_all
from benchmarks.dice_statistics import Estimate, RunResult, Summary, difference, frames_to_level, summarise, windowed
from herd.config.loading import load_settings
from herd.plots.history import read_run
from herd.service.machine import describe_hardware

if TYPE_CHECKING:
    from collections.abc import Sequence

ABLATIONS = ("dice", "baseline", "random", "entropy")
LEVEL = 0.7
"""Halfway between staying in the corner (0.4 with four columns) and catching every ball (1)."""
FIRST_SEED = 101
"""Seeds 101 to 110 were not used for tuning."""
FEWEST_SEEDS = 3
WINDOWS = 30
GAMES = 500
"""Games per evaluation: the standard error of a mean is then at most 0.04, well below the differences between seeds."""


def main() -> None:
    parser = _parser()
    options, overrides = parser.parse_known_args()
    if options.seeds < FEWEST_SEEDS:
        parser.error(f"--seeds must be at least {FEWEST_SEEDS}: the bootstrap of fewer gives intervals that say nothing")
    # So that SIGTERM also ends the current run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    runs = options.output / "runs"
    experiment = EXPERIMENTS / f"{options.experiment}.yaml"
    total = float(load_settings([experiment], overrides, {}).stop.env_frames or 0)
    train_all(runs, options.ablations, seeds, overrides, limit_seconds=options.limit_seconds, experiment=experiment)

    results = {}
    for ablation in options.ablations:
        results[ablation] = [
            result_of(run_directory(runs, ablation, seed), ablation, seed, total, level=options.level, games=options.games)
            for seed in seeds
        ]
        print(f"{ablation}: {len(seeds)} runs read and played", flush=True)
    summaries = [summarise(results[ablation], total=total) for ablation in options.ablations]
    differences = differences_of(results)
    print_tables(summaries, differences, total, options.level)
    report = {
        "command": " ".join(["python", "-m", "benchmarks.dice_comparison", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "hardware": describe_hardware(),
        "experiment": experiment.name,
        "env_frames": total,
        "level": options.level,
        "games_per_evaluation": options.games,
        "summaries": [asdict(summary) for summary in summaries],
        "differences": {name: {key: asdict(value) for key, value in of.items()} for name, of in differences.items()},
        "runs": [asdict(result) for of in results.values() for result in of],
    }
    (options.output / "comparison.json").write_text(json.dumps(report, indent=1) + "\n")
    draw(summaries, results, options.output / "comparison.png", total=total, level=options.level)
    print(f"wrote {options.output / 'comparison.json'} and comparison.png")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="of runs, comparison.json and comparison.png")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="runs of each ablation")
    parser.add_argument("--first_seed", type=int, default=FIRST_SEED, metavar="N", help="the others follow it")
    parser.add_argument("--experiment", default="dice-deceptive", help="the one to train, of one task (dice-deceptive)")
    parser.add_argument("--level", type=float, default=LEVEL, help="a return whose first arrival is reported")
    parser.add_argument("--games", type=int, default=GAMES, metavar="N", help="that each last checkpoint plays, twice")
    parser.add_argument("--ablations", nargs="+", choices=ABLATIONS, default=list(ABLATIONS), help="of DiCE's Table 4")
    parser.add_argument("--limit_seconds", type=float, default=1800.0, metavar="S", help="no run may take longer")
    return parser


def result_of(directory: Path, ablation: str, seed: int, total: float, *, level: float = LEVEL, games: int = GAMES) -> RunResult:
    """Read the curve of one run, and play its last checkpoint twice."""
    from herd.evaluation.evaluate import evaluate_runs  # noqa: PLC0415  torch loads

    history = read_run(directory)
    (returns,) = history.episode_returns.values()
    curve = windowed(history.env_frames, returns, total=total, windows=WINDOWS)
    sampled, greedy = (evaluate_runs([directory], episodes=games, seed=seed, greedy=greedy).tasks[0].mean for greedy in (False, True))
    return RunResult(
        ablation=ablation,
        seed=seed,
        curve=tuple(curve.tolist()),
        area=float(np.mean(curve)),
        frames_to_level=frames_to_level(curve, level, total=total),
        final=sampled,
        final_greedy=greedy,
    )


def differences_of(results: dict[str, list[RunResult]]) -> dict[str, dict[str, Estimate]]:
    """Return ``dice`` minus every other ablation; empty if ``dice`` did not run."""
    first = results.get("dice", [])
    return {
        f"dice - {name}": {
            field: difference([getattr(one, field) for one in first], [getattr(one, field) for one in second])
            for field in ("final", "final_greedy", "area")
        }
        for name, second in results.items()
        if first and name != "dice"
    }


def print_tables(summaries: Sequence[Summary], differences: dict[str, dict[str, Estimate]], total: float, level: float = LEVEL) -> None:
    console = Console(width=120)
    table = Table(title=f"after {total:,.0f} env frames; mean (95 % interval over seeds)", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("ablation", "seeds", "final return", "greedy", "return over the run", f"frames to {level:g}", "reached"):
        table.add_column(heading, justify="left" if heading == "ablation" else "right")
    for one in summaries:
        frames = one.frames_to_level
        table.add_row(
            *(one.ablation, str(one.num_seeds), _text(one.final), _text(one.final_greedy), _text(one.area)),
            f"{frames.mean / 1e3:,.0f} k ({frames.low / 1e3:,.0f} to {frames.high / 1e3:,.0f} k)",
            f"{one.num_reached} of {one.num_seeds}",
        )
    console.print(table)
    if differences:
        table = Table(title="differences", title_justify="left", box=box.SIMPLE_HEAD)
        for heading in ("", "final return", "greedy", "return over the run"):
            table.add_column(heading, justify="right" if heading else "left")
        for name, of in differences.items():
            table.add_row(name, *(_text(one) for one in of.values()))
        console.print(table)


def _text(one: Estimate) -> str:
    return f"{one.mean:.2f} ({one.low:.2f} to {one.high:.2f})"


if __name__ == "__main__":
    main()
