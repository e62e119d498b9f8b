"""What a frame costs as a run grows from 10 to 10,000 actors: ``python -m benchmarks.growth --output DIR``.

It runs `benchmarks.fan_in` and `benchmarks.fan_out` once for every number of actors, so a learner's shard and the parameter servers are the
real ones and the actors are simulated. A measurement that is in DIR is not repeated. It writes ``growth.md`` there. Nothing else may run
beside it; it takes about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ACTORS = (10, 100, 1_000, 5_000, 10_000)
UNROLLS_PER_MESSAGE = (1, 16)
FRAMES = 80
"""Of an unroll: 20 agent steps of four."""
PROCESSES = 4
"""That simulate actors: with 10,000 of them, two would need more open files than a process usually may have."""
INTERVAL_SECONDS = 15
"""Between two versions of the weights."""
_PER_MILLION = 1e6 / FRAMES
"""Unrolls in a million frames; a microsecond for each of them is 0.0125 s."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where the measurements and the table go")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of each measurement (10)")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    fan_in = {
        (actors, unrolls): _measured(
            options.output / f"fan-in-{actors}-actors-{unrolls}-unrolls.json",
            f"benchmarks.fan_in --actors {actors} --unrolls-per-message {unrolls} --unrolls-per-second inf --breaks 0",
            options.seconds,
        )
        for actors in ACTORS
        for unrolls in UNROLLS_PER_MESSAGE
    }
    fan_out = {
        actors: _measured(
            options.output / f"fan-out-{actors}-actors.json",
            f"benchmarks.fan_out --actors {actors} --replicas {2 * (actors > ACTORS[1])} --interval-seconds {INTERVAL_SECONDS}",
            options.seconds,
        )
        for actors in ACTORS
    }
    text = table(fan_in, fan_out)
    (options.output / "growth.md").write_text(text)
    print(text)


def _measured(kept: Path, words: str, seconds: float) -> dict[str, Any]:
    """Return the JSON object that a benchmark prints, kept in a file."""
    if not kept.is_file():
        print(f"measuring {kept.stem}", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", *words.split(), "--processes", str(PROCESSES), "--seconds", str(seconds)]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with exit code {done.returncode}")
        kept.write_text(done.stdout)
    found: dict[str, Any] = json.loads(kept.read_text())
    return found


def table(fan_in: dict[tuple[int, int], dict[str, Any]], fan_out: dict[int, dict[str, Any]]) -> str:
    """Return the costs by number of actors, as Markdown."""
    machine = next(iter(fan_in.values()))
    lines = [
        "# What a frame costs as a run grows",
        "",
        f"{machine['hardware']['processor']}, {machine['hardware']['usable_cores']} cores, {machine['date'][:10]}: "
        "`python -m benchmarks.growth --output DIR`. Actors are simulated on the same cores, and an unroll has 20 agent steps of Atari.",
        "",
        "| actors | unrolls a message | frames/s taken in | messages per million frames | GB per million frames "
        "| learner's process, core-seconds per million frames | of these, I/O thread and ZeroMQ | frames/s that one core could take in |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (actors, unrolls), found in fan_in.items():
        cost = found["receiver"]
        threads = cost["thread_cpu_microseconds_per_unroll"]
        receiving = threads["io_thread"] + threads["zeromq"]
        lines.append(
            f"| {actors:,} | {unrolls} | {found['frames_per_second']:,.0f} | {_PER_MILLION / unrolls:,.0f} "
            f"| {found['bytes_per_unroll'] * _PER_MILLION / 1e9:.2f} | {cost['cpu_microseconds_per_unroll'] * _PER_MILLION / 1e6:.2f} "
            f"| {receiving * _PER_MILLION / 1e6:.2f} | {FRAMES * 1e6 / receiving:,.0f} |"
        )
    lines += [
        "",
        f"Parameter servers, while a new version of the weights is published every {INTERVAL_SECONDS} s and each actor asks every 1.6 s:",
        "",
        "| actors | parameter servers | requests/s | GB/s | cores | an answer with weights, core-us | without, core-us "
        "| all actors have a new version after |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for actors, found in fan_out.items():
        busy, replicas = found["publishing"], len(found["servers"]) - 1
        worst = max(version["worst_seconds"] for version in found["versions"])
        lines.append(
            f"| {actors:,} | 1{f' and {replicas} replicas' if replicas else ''} | {busy['requests_per_second']:,.0f} "
            f"| {busy['bytes_out_per_second'] / 1e9:.2f} | {busy['servers_cores']:.2f} | {found['cpu_microseconds_per_weights']:,.0f} "
            f"| {found['cpu_microseconds_per_not_modified']:,.0f} | {worst:.2f} s |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
