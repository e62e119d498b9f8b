"""Compares the learner's update in two versions of the code, in short turns: processor time per agent step, and ratios pair by pair.

``python -m benchmarks.updates OLD NEW --pairs 9 --seconds 0.5``; OLD and NEW are checkouts, run with this interpreter. Each has one process
with one thread. Turns are short, so that other load on the machine affects both. Only the processes' own time counts.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHALLOW = ["--network.torso", "shallow"]
LSTM = [*SHALLOW, "--network.core", "lstm"]
SMALL = ["--learner.batch_size", "8", "--actor.environments", "8"]
CASES = {
    "`breakout`: shallow, Adam, 8 x 32": ("breakout", []),
    "shallow, RMSProp, 32 x 20": ("atari-shallow", SHALLOW),
    "shallow with an LSTM, 32 x 20": ("atari-shallow", LSTM),
    "shallow with an LSTM, 8 x 100": ("atari-shallow", [*LSTM, *SMALL, "--algorithm.unroll_length", "100"]),
    "deep with an LSTM, 8 x 20": ("atari-deep-lstm", SMALL),
}
"""Each case: an experiment, and its changed settings."""


def main() -> int:
    """Measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    options = parser.parse_args()
    versions = {name: _started(getattr(options, name).resolve(), options.seconds) for name in ("old", "new")}
    print("| update | old, core-us a step | new | new / old of each pair: median (lowest to highest) |\n| --- | --- | --- | --- |")
    for case in CASES:
        pairs: list[dict[str, float]] = []
        for number in range(options.pairs + 1):
            order = list(versions) if number % 2 == 0 else list(versions)[::-1]
            pairs.append({name: _turn(versions[name], case) for name in order})
        pairs = pairs[1:]  # first calls allocate
        old, new = (statistics.median(pair[name] for pair in pairs) for name in versions)
        ratios = [pair["new"] / pair["old"] for pair in pairs]
        print(f"| {case} | {old:.1f} | {new:.1f} | {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}) |", flush=True)
    for process in versions.values():
        process.terminate()
    return 0


def _started(checkout: Path, seconds: float) -> subprocess.Popen[str]:
    paths = [checkout, *sorted((checkout / "services").iterdir())]
    tuned = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000"}  # as the learner tunes its allocator
    return subprocess.Popen(
        [sys.executable, str(Path(__file__)), str(seconds)],
        cwd=checkout,
        env={**os.environ, **tuned, "PYTHONPATH": os.pathsep.join(map(str, paths)), "CASES": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _turn(process: subprocess.Popen[str], case: str) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    print(case, file=process.stdin, flush=True)
    return float(process.stdout.readline())


def serve(seconds: float) -> None:
    """Run in a checkout's own process: for each case on stdin, print the processor microseconds per agent step."""
    import torch  # noqa: PLC0415  the parent does without
    from herd_learner.loop import choose_device  # noqa: PLC0415

    from benchmarks.machine.synthetic import synthetic_unrolls  # noqa: PLC0415
    from herd.components.optimizers import Rates  # noqa: PLC0415
    from herd.components.suites import environment_spec  # noqa: PLC0415
    from herd.config.loading import load_settings  # noqa: PLC0415
    from herd.config.run_contract import run_layout  # noqa: PLC0415
    from herd.training.batch import BatchBuffer  # noqa: PLC0415
    from herd.training.trainer import Trainer  # noqa: PLC0415

    torch.set_num_threads(1)
    made = {}
    for line in sys.stdin:
        case = line.strip()
        if case not in made:
            experiment, changes = CASES[case]
            settings = load_settings([ROOT / f"experiments/{experiment}.yaml"], changes, {})
            spec = environment_spec(settings.env)
            layout = run_layout(settings, spec)
            batches = [
                BatchBuffer.from_unrolls(layout, synthetic_unrolls(layout, settings.learner.batch_size, seed=seed)) for seed in range(2)
            ]
            steps = settings.num_online_unrolls * layout.new_steps
            made[case] = Trainer(settings, spec, *choose_device(settings)), itertools.cycle(batches), steps
        trainer, upcoming, steps = made[case]
        done, started = 0, time.process_time()
        while (elapsed := time.process_time() - started) < seconds or done < 2:
            trainer(next(upcoming), Rates(1e-7))  # so small that no update is ever skipped
            done += 1
        print(elapsed / (done * steps) * 1e6, flush=True)


if __name__ == "__main__":
    if "CASES" in os.environ:
        serve(float(sys.argv[1]))
    else:
        sys.exit(main())
