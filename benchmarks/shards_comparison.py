"""Tests whether N learner shards learn as much from each frame as one: ``python -m benchmarks.shards_comparison --output DIR``.

It trains Catch with every number of shards and every seed, one run after the other. It compares the frames until the mean return of the
last 100 games reaches a level, the mean of the whole curve, and the final return, with 95 % bootstrap intervals over seeds, and the
differences to one shard. It writes ``shards.json`` and ``shards.png`` into DIR. Complete runs are not repeated.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from herd.evaluation.intervals import mean_interval, stratified_interval
from herd.service.machine import describe_hardware

ROOT = Path(__file__).parents[1]
EXPERIMENT = ROOT / "experiments" / "catch.yaml"
LEVEL = 0.9
RUN_SECONDS = 600.0
# A point of the curve every few updates, so that the frame at which the level is reached is known to 1 % of the run.
OVERRIDES = ("--learner.log_interval_seconds", "0.05", "--learner.threads", "1")
MEASURES = ("frames_to_level", "area", "final")


@dataclass(frozen=True, slots=True)
class Result:
    shards: int
    seed: int
    frames_to_level: float
    """All frames of the run if the level was not reached."""
    reached: bool
    area: float
    """Mean return over all frames of the run: that of the last 100 games at each point, weighted by the frames until the next."""
    final: float


def train(runs: Path, shards: int, seed: int) -> Path:
    """Train one run, unless it exists."""
    run_dir = runs / f"shards-{shards}-seed-{seed}"
    if not (run_dir / "report.json").exists():
        words = ["train", str(EXPERIMENT), "--run_dir", str(run_dir), "--name", f"shards-{shards}", "--seed", str(seed)]
        command = [sys.executable, "-m", "herd.cli.main", *words, "--learner.shards", str(shards), *OVERRIDES]
        subprocess.run(command, check=True, timeout=RUN_SECONDS, stdout=subprocess.DEVNULL, cwd=ROOT)
    return run_dir


def result_of(run_dir: Path, shards: int, seed: int) -> Result:
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    curve = [(point["env_frames"], point["episode_return_mean_100"]) for point in map(json.loads, lines)]
    curve = [(frames, mean) for frames, mean in curve if mean is not None]
    frames, means = np.array(curve, float).T
    above = frames[means >= LEVEL]
    area = float(np.average(means[:-1], weights=np.diff(frames)))
    return Result(shards, seed, float(above[0] if len(above) else frames[-1]), bool(len(above)), area, float(means[-1]))


def summarise(results: list[Result], baseline: list[Result]) -> dict[str, Any]:
    """Return means and intervals for one number of shards, and of its difference to the baseline."""
    summary: dict[str, Any] = {"seeds": len(results), "reached": sum(result.reached for result in results)}
    for measure in MEASURES:
        mine = np.array([getattr(result, measure) for result in results])
        theirs = np.array([getattr(result, measure) for result in baseline])
        entry = {"mean": float(mine.mean()), "interval": mean_interval(mine)}
        if results is not baseline:
            entry["minus_one_shard"] = float(mine.mean() - theirs.mean())
            entry["minus_one_shard_interval"] = stratified_interval([mine, theirs], lambda means: means[:, 0] - means[:, 1])
        summary[measure] = entry
    return summary


def draw(runs: list[Path], picture: Path) -> None:
    subprocess.run([sys.executable, "-m", "herd.cli.main", "plot", *map(str, runs), "--output", str(picture)], check=True, cwd=ROOT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    results: dict[int, list[Result]] = {shards: [] for shards in arguments.shards}
    run_dirs = []
    for seed in range(1, arguments.seeds + 1):
        for shards in arguments.shards:
            run_dirs.append(train(arguments.output / "runs", shards, seed))
            results[shards].append(result_of(run_dirs[-1], shards, seed))
            print(results[shards][-1], flush=True)
    baseline = results[arguments.shards[0]]
    report = {
        "command": "python -m benchmarks.shards_comparison --output DIR",
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": describe_hardware(),
        "level": LEVEL,
        "shards": {str(shards): summarise(rows, baseline) for shards, rows in results.items()},
        "runs": [{name: getattr(row, name) for name in Result.__slots__} for rows in results.values() for row in rows],
    }
    (arguments.output / "shards.json").write_text(json.dumps(report, indent=2) + "\n")
    draw(run_dirs, arguments.output / "shards.png")
    print(json.dumps(report["shards"], indent=2))


if __name__ == "__main__":
    main()
