"""Two versions of the code on one machine in one hour: ``benchmarks.machine`` of each, alternating, and the ratios pair by pair.

``python -m benchmarks.versions OLD NEW --experiments breakout atari-deep --pairs 3 --seconds 8 --output FILE``; OLD and NEW are checkouts,
each with its own environment in ``.venv``. The order within a pair changes, so that a machine which slows down favours neither. Nothing
else may run. A version that knows experiments by path only is given the path.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FIGURES = {
    "frames per second of the whole": ("stages", "system", "frames_per_second"),
    "share of the ceiling": ("share_of_ceiling",),
    "ceiling, frames per second": ("ceiling", "frames_per_second"),
    "environment, core-us a step": ("stages", "environment", "core_microseconds_per_agent_step"),
    "inference, core-us a step": ("stages", "inference", "core_microseconds_per_agent_step"),
    "learner, core-us a step": ("stages", "learner", "core_microseconds_per_agent_step"),
}
TIMEOUT_SECONDS = 600.0


def main() -> int:
    """Measure, print a table for each experiment, write everything to FILE."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--experiments", nargs="+", default=["breakout", "atari-deep"])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured per stage")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "seconds": options.seconds, "experiments": {}}
    for experiment in options.experiments:
        pairs = []
        for number in range(options.pairs):
            order = ("old", "new") if number % 2 == 0 else ("new", "old")
            pair = {version: bench(getattr(options, version), experiment, options.seconds) for version in order}
            results["hardware"] = pair["new"].pop("hardware")
            pairs.append({version: figures(report) for version, report in pair.items()})
        results["experiments"][experiment] = pairs
        print_table(experiment, pairs)
    if options.output is not None:
        options.output.write_text(json.dumps(results, indent=1) + "\n")
    return 0


def bench(checkout: Path, experiment: str, seconds: float) -> dict[str, Any]:
    """The report of one ``python -m benchmarks.machine``; in older checkouts the command is ``herd bench``.

    Raises:
        subprocess.SubprocessError: it failed, or took longer than ten minutes.
    """
    by_path = checkout / "experiments" / f"{experiment}.yaml"
    is_older = (checkout / "herd/bench").exists()
    command = [checkout / ".venv/bin/herd", "bench"] if is_older else [checkout / ".venv/bin/python", "-m", "benchmarks.machine"]
    done = subprocess.run(
        [*map(str, command), str(by_path if by_path.exists() else experiment), "--json", "--repeats", "1", "--seconds", str(seconds)],
        cwd=checkout,
        env={name: value for name, value in os.environ.items() if not name.startswith(("HERD_", "PYTHON", "VIRTUAL_ENV"))},
        stdout=subprocess.PIPE,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def figures(report: dict[str, Any]) -> dict[str, float]:
    """What is compared, by name."""
    found = {}
    for name, path in FIGURES.items():
        value: Any = report
        for key in path:
            value = value[key]
        found[name] = float(value)
    return found


def print_table(experiment: str, pairs: list[dict[str, dict[str, float]]]) -> None:
    """A Markdown table: medians of both versions, and the ratio new / old of each pair."""
    print(
        f"\n{experiment}, {len(pairs)} pairs\n\n| figure | old | new | new / old, median (lowest to highest) |\n| --- | --- | --- | --- |"
    )
    for name in FIGURES:
        old, new = (statistics.median(pair[version][name] for pair in pairs) for version in ("old", "new"))
        ratios = [pair["new"][name] / pair["old"][name] for pair in pairs]
        spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        print(f"| {name} | {old:,.3g} | {new:,.3g} | {spread} |" if old < 100 else f"| {name} | {old:,.0f} | {new:,.0f} | {spread} |")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
