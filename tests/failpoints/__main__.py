"""``python -m tests.failpoints --minutes 60 --seed 1``: kills at random failpoints of a run of every service, and checks every promise."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.soak.proxied_run import RunEndedError
from herd.service.host import describe_hardware
from tests.failpoints.campaign import FailingRun
from tests.failpoints.points import TABLE, Row

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "failpoints.json"


def main(argv: Sequence[str]) -> int:
    """Return 0 if every promise was kept, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.failpoints", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="duration after the start of training")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the points")
    parser.add_argument("--output", type=Path, default=RESULT, help="file for the result")
    arguments, words = parser.parse_known_args(argv)
    for number in (signal.SIGINT, signal.SIGTERM):  # also in the background, where a shell has SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="herd-failpoints-") as folder:
        report = _campaign(Path(folder) / "campaign", arguments.minutes * 60.0, Random(arguments.seed), words)
    report |= {"date": time.strftime("%Y-%m-%d"), "command": shlex.join(["python", "-m", "tests.failpoints", *argv])}
    report |= {"seed": arguments.seed, "hardware": describe_hardware()}
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    print(as_text(report))
    return int(bool(report["broken"] or report["not_in_table"] or not report["kills"]))


def _campaign(folder: Path, seconds: float, random: Random, words: Sequence[str]) -> dict[str, Any]:
    broken: list[str] = []
    with FailingRun(folder, *words) as run:
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                for row, point in _shuffled(random):
                    if time.monotonic() >= end:
                        break
                    kill = run.kill_at(row, point)
                    what = "not reached" if kill is None else f"{kill.process}, recovered in {kill.seconds or float('nan'):.1f} s"
                    print(f"{row.service:12} {point}: {what}; {len(run.breaches)} broken", flush=True)
            run.finish()
        except KeyboardInterrupt:
            run.finish()
        except RunEndedError as error:
            broken.append(f"the run goes on: {error}")
        kills, void = run.story.kills, run.story.void
        broken += [f"{breach.promise}: {breach.detail}" for breach in run.breaches]
        known = {(row.service, point) for row in TABLE for point in row.points}
        by_point = {kill.point: [each.seconds for each in kills if each.point == kill.point] for kill in kills}
        return {
            "minutes": round(run.monitor.seconds / 60, 1),
            "kills": len(kills),
            "points": {point: [None if one is None else round(one, 1) for one in spent] for point, spent in sorted(by_point.items())},
            "not_reached": sorted(void),
            "num_files_checked": run.durable.num_checked,
            "num_ledger_snapshots": run.monitor.num_snapshots,
            "not_in_table": sorted(": ".join(one) for one in run.recorded() - known),
            "broken": broken,
        }


def _shuffled(random: Random) -> list[tuple[Row, str]]:
    """Return every point that a running service reaches, or a starting one, in random order; the next one is of another service.

    A point of a start takes two kills. Several in a row would be taken for a service that cannot work.
    """
    found = [(row, point) for row in TABLE if row.service != "writer" and row.when in {"run", "start"} for point in row.points]
    random.shuffle(found)
    ordered: list[tuple[Row, str]] = []
    while found:
        last = ordered[-1][0].service if ordered else None
        ordered.append(found.pop(next((place for place, (row, _) in enumerate(found) if row.service != last), 0)))
    return ordered


def as_text(report: dict[str, Any]) -> str:
    """Return the result as a table."""
    lines = ["| point | kills | recovered | seconds: median (worst) |", "| --- | --- | --- | --- |"]
    for point, spent in report["points"].items():
        recovered = [one for one in spent if one is not None]
        seconds = f"{statistics.median(recovered):.1f} ({max(recovered):.1f})" if recovered else "-"
        lines.append(f"| {point} | {len(spent)} | {len(recovered)} | {seconds} |")
    lines.append(f"\n{report['kills']} kills at {len(report['points'])} points; " + ("; ".join(report["broken"]) or "every promise kept"))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
