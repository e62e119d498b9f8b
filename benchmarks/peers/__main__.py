"""Trains the same tasks with Herd, Stable-Baselines3, Sample Factory and a PPO on envpool on this machine, one after the other.

Each program uses the settings that it publishes, in a virtual environment of its own, which this command makes. Returns are those that the
environments themselves write down (`benchmarks.peers.tasks`), so they mean the same in every program. A run that OUTPUT has is not
repeated, so an interrupted command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers.programs import PROGRAMS, SMALL, python_of
from benchmarks.peers.runs import Run, train
from benchmarks.peers.tables import draw, table
from benchmarks.peers.tasks import TASKS
from herd.files import replace_file
from herd.service.host import describe_hardware


def main() -> None:
    """Parse the command line, train what is missing, write the table and the picture."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument(
        "--tasks",
        default=",".join(SMALL),
        help=f"tasks, with commas (default: the small ones; Atari's: {','.join(sorted(TASKS.keys() - SMALL))})",
    )
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="programs, with commas (default: all)")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="how many (5)")
    parser.add_argument("--first_seed", type=int, default=1, metavar="N", help="the first of them (1)")
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time; with more than one, minutes are not compared")
    parser.add_argument("--minutes", type=float, default=60.0, help="longest time of a run; one of Atari then ends without its score")
    parser.add_argument("--environments", type=Path, required=True, metavar="DIR", help="folder of the virtual environments")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the results")
    options = parser.parse_args()
    tasks, programs = options.tasks.split(","), options.programs.split(",")
    for names, known in ((tasks, TASKS), (programs, PROGRAMS)):
        if unknown := [name for name in names if name not in known]:
            parser.error(f"{', '.join(unknown)}: not among {', '.join(known)}")
    if options.seeds < 1 or options.first_seed < 0:
        parser.error(f"--seeds {options.seeds} --first_seed {options.first_seed}: should be at least 1 and at least 0")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    options.output.mkdir(parents=True, exist_ok=True)
    pythons = {name: python_of(name, options.environments) for name in programs}
    hardware = describe_hardware()

    def train_missing(task: str, seed: int, name: str) -> None:
        path = options.output / f"{task}-{name}-{seed}.json"
        if path.exists() or task in PROGRAMS[name].lacks:
            return
        run = train(name, pythons[name], task, seed, alone=options.parallel == 1, hardware=hardware, minutes=options.minutes)
        replace_file(path, json.dumps(asdict(run)) + "\n")
        print(f"{path.stem}: {run.returns[-1]:.4g} after {run.wall_seconds:.0f} s, {run.core_seconds:.0f} core-seconds", flush=True)

    # Programs alternate, so that a slow minute of the machine meets all of them.
    with ThreadPoolExecutor(options.parallel) as pool:
        list(pool.map(lambda each: train_missing(*each), itertools.product(tasks, seeds, programs)))
    runs = [Run(**json.loads(path.read_text())) for path in sorted(options.output.glob("*-*.json"))]
    if not runs:
        raise SystemExit(f"{options.output} has no results")
    (options.output / "table.md").write_text(table(runs))
    draw(runs, options.output / "curves.png")
    print(table(runs))


if __name__ == "__main__":
    main()
