"""Measures the resident memory of every process of a run:
``python benchmarks/memory.py experiments/breakout.yaml --minutes 60 --output DIR``.

It starts ``herd train``, samples each process every few seconds, and compares the mean of the second quarter with that of the last. It
writes ``memory.csv`` (a row per sample) and ``memory.json`` (growth per process) into DIR, next to the run itself.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import psutil

SAMPLE_SECONDS = 5.0


def sample(run_dir: Path, root: psutil.Process) -> dict[str, int]:
    """Return the resident bytes by process name."""
    sizes = {"herd-train": root.memory_info().rss}
    for file in sorted((run_dir / "processes").glob("*.json")):
        try:
            pid = json.loads(file.read_text())["pid"]
            sizes[file.stem] = psutil.Process(pid).memory_info().rss
        except (psutil.NoSuchProcess, json.JSONDecodeError):
            continue
    return sizes


def growth(samples: list[tuple[float, int]], seconds: float) -> dict[str, float]:
    """Return the means of the second and of the last quarter of the run, and the growth between them as a share."""
    quarter = seconds / 4
    second = [size for at, size in samples if quarter <= at < 2 * quarter]
    last = [size for at, size in samples if at >= 3 * quarter]
    if not second or not last:
        raise SystemExit("the run was too short to have quarters")
    before, after = sum(second) / len(second), sum(last) / len(last)
    return {"second_quarter_bytes": before, "last_quarter_bytes": after, "growth": after / before - 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--output", type=Path, required=True)
    arguments, overrides = parser.parse_known_args()
    seconds = arguments.minutes * 60
    run_dir = arguments.output / "run"
    command = [sys.executable, "-m", "herd.cli.main", "train", str(arguments.file), "--run_dir", str(run_dir), *overrides]
    arguments.output.mkdir(parents=True, exist_ok=True)
    by_process: dict[str, list[tuple[float, int]]] = defaultdict(list)
    process = subprocess.Popen([*command, "--stop.env_frames", "null", "--stop.wall_seconds", "null"], stdout=subprocess.DEVNULL)
    started = time.monotonic()
    try:
        while (elapsed := time.monotonic() - started) < seconds:
            if process.poll() is not None:
                raise SystemExit(f"the run ended by itself with exit code {process.returncode}")
            for name, size in sample(run_dir, psutil.Process(process.pid)).items():
                by_process[name].append((elapsed, size))
            time.sleep(SAMPLE_SECONDS)
    finally:
        process.send_signal(signal.SIGTERM)
    with (arguments.output / "memory.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["process", "seconds", "resident_bytes"])
        writer.writerows([name, f"{at:.1f}", size] for name, samples in by_process.items() for at, size in samples)
    result = {
        "command": " ".join(["python", "benchmarks/memory.py", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "hardware": {"machine": platform.machine(), "cpus": psutil.cpu_count()},
        "minutes": arguments.minutes,
        "processes": {name: growth(samples, seconds) for name, samples in by_process.items()},
    }
    (arguments.output / "memory.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["processes"], indent=2))
    process.wait()  # it kills its own children after a delay


if __name__ == "__main__":
    main()
