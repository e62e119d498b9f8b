"""``python -m tests.simulation SEED``: run one seed. ``--seeds 1..100000 --minutes 10``: a campaign over many."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace

from tests.simulation.defects import DEFECTS
from tests.simulation.run import Result, command, run, shrink
from tests.simulation.world import Plan

CHUNK = 50
"""Seeds that a process of a campaign takes at once."""


def main(arguments: list[str]) -> int:
    """Return the exit code: 1 if something was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", help="the seed of one history")
    parser.add_argument("--only", help="numbers of the faults that happen, such as 0,3; none: no faults")
    parser.add_argument("--defect", type=int, help="plant a defect by its number, and end at the first seed that shows it")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--seeds", default="1..200", help="first..last seed of a campaign (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end the campaign after this time")
    options = parser.parse_args(arguments)
    with nullcontext() if options.defect is None else DEFECTS[options.defect - 1].planted():
        return _one(options) if options.seed is not None else _many(options)


def _many(options: argparse.Namespace) -> int:
    first, last = map(int, options.seeds.split(".."))
    return _campaign(range(first, last + 1), 60.0 * options.minutes, ends_at_first=options.defect is not None)


def _one(options: argparse.Namespace) -> int:
    only = None
    if options.only is not None:
        only = frozenset() if options.only == "none" else frozenset(map(int, options.only.split(",")))
    result = run(Plan.of(options.seed, only), print if options.trace else None)
    for fault in result.plan.faults:
        print(f"{fault.at:8.2f} s  {fault.kind}")
    print(f"{result.num_events} events, history {result.digest}")
    if result.failure is not None:
        print(f"violated {result.failure}\n{_shrunk(result)}")
    return int(result.failure is not None)


def _shrunk(result: Result) -> str:
    return f"with fewest faults: {command(shrink(result.plan, lambda plan: run(plan).failure is not None))}"


def _campaign(seeds: range, seconds: float, *, ends_at_first: bool) -> int:
    deadline = time.monotonic() + seconds
    marks: Counter[str] = Counter()
    num_seeds = num_events = num_failures = 0
    for result in _results(seeds, deadline):
        num_seeds, num_events = num_seeds + 1, num_events + result.num_events
        marks += result.marks
        if result.failure is not None:
            num_failures += 1
            print(f"violated {result.failure}\n    {command(result.plan)}\n    {_shrunk(result)}", flush=True)
            if ends_at_first:
                break
    print(f"{num_seeds} seeds, {num_events} events, {num_failures} violations")
    for mark, number in sorted(marks.items()):
        print(f"{number:10}  {mark}")
    return int(num_failures > 0)


def _results(seeds: range, deadline: float) -> Iterator[Result]:
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    if len(chunks) == 1:
        yield from map(run, map(Plan.of, seeds))
        return
    with ProcessPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
        for results in pool.map(_run_chunk, chunks, [deadline - time.monotonic() + time.time()] * len(chunks)):
            yield from results


def _run_chunk(seeds: range, deadline: float) -> list[Result]:
    results = []
    for seed in seeds:
        if time.time() > deadline:
            break
        result = run(Plan.of(seed))
        results.append(replace(result, marks=Counter(result.marks)))
    return results


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
