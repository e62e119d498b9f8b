"""Runs a slice of the fuzzing campaign and adds it to the results of earlier slices: ``python -m benchmarks.fuzz --report FILE``.

First it fuzzes some of the decoders and of the services' decision code, each in its own process and guided by coverage (`decoder`; needs
the extra ``fuzz``). Then it sends fuzzed messages to every socket and every metrics port of a real run
(`sockets`). Each slice has its own seed. The exit code is 1 if anything crashed or a check failed, in this slice or an earlier one.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.fuzz import decoder, sockets
from herd.service.host import describe_hardware

TARGETS_EACH = 3
"""Number of in-process targets in a slice."""
OF_A_MILLION = "memory flat"
"""The check of `sockets` that needs a longer flood than that of a slice."""


def core_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def fuzz_decoders(number: int, arguments: argparse.Namespace, corpus: Path, crashes: Path) -> dict[str, dict[str, Any]]:
    """Fuzz some targets, with MessagePack in C, which production uses, and every other round in Python."""
    names = list(decoder.MODULES)
    first = number * TARGETS_EACH
    variant = decoder.VARIANTS[1 - first // len(names) % 2]
    chosen = arguments.targets or [names[(first + offset) % len(names)] for offset in range(TARGETS_EACH)]
    return {
        name: decoder.run(name, variant, corpus / name, crashes, seconds=arguments.seconds, seed=number + 1)
        for name in (chosen if arguments.seconds else ())
    }


def flood(number: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Send messages to every socket, and garbage to every metrics port."""
    words = ["--messages", str(arguments.messages), "--minutes", str(arguments.minutes), "--http", str(arguments.http)]
    words += ["--servers", *arguments.servers]
    with tempfile.TemporaryDirectory() as folder:
        return sockets.attack(sockets.parse([*words, "--rest-seconds", "0", "--sieges", "--seed", str(number + 1)]), Path(folder) / "run")


def add_up(report: dict[str, Any], decoders: dict[str, dict[str, Any]], attack: dict[str, Any]) -> None:
    """Add one slice to the earlier ones."""
    inputs, messages, ports = Counter(report["inputs"]), Counter(report["messages"]), Counter(report["http_connections"])
    inputs.update({name: result["executions"] for name, result in decoders.items()})
    messages.update({name: result["messages"] for name, result in attack["floods"].items()})
    ports.update({name: result["connections"] for name, result in attack["metrics"].items()})
    report |= {"inputs": dict(inputs), "messages": dict(messages), "http_connections": dict(ports)}
    report["total"] = inputs.total() + messages.total() + ports.total()
    report["crashes"] += sum(result["crashed"] for result in decoders.values())
    for check, holds in attack["checks"].items():
        if check != OF_A_MILLION:
            report["checks"][check] = holds and report["checks"].get(check, True)
    for name, result in attack["floods"].items():
        samples = result["allocated"]["samples"]
        report["most_growth_bytes"][name] = max(samples[-1] - samples[len(samples) // 4], report["most_growth_bytes"].get(name, 0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, required=True, help="JSON; what is there already is added to")
    parser.add_argument("--messages", type=int, default=100_000, help="against each server's socket")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all of them, at most; the report says how many went")
    parser.add_argument("--servers", nargs="+", default=sockets.SERVERS, choices=sockets.SERVERS, help="default: all seven")
    parser.add_argument("--seconds", type=int, default=10, help="for each target in one process; 0: none")
    parser.add_argument("--targets", nargs="+", choices=list(decoder.MODULES), help="default: the next few")
    parser.add_argument("--http", type=int, default=200, help="connections to each metrics port")
    parser.add_argument("--corpus", type=Path, help="of in-process targets, kept between slices; default: a temporary folder")
    arguments = parser.parse_args()
    if arguments.seconds and find_spec("atheris") is None:
        parser.error("--seconds needs atheris: pip install 'herd-rl[fuzz]', or give --seconds 0")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the `with` statement that ends the processes
    kept = {"inputs": {}, "messages": {}, "http_connections": {}, "total": 0, "crashes": 0, "checks": {}, "most_growth_bytes": {}}
    report: dict[str, Any] = {"slices": [], **kept}
    if arguments.report.exists():
        report = json.loads(arguments.report.read_text())
    number, before = len(report["slices"]), (core_seconds(), time.monotonic(), report["total"])
    with tempfile.TemporaryDirectory() as folder:
        crashes = Path(folder)
        decoders = fuzz_decoders(number, arguments, arguments.corpus or crashes / "corpus", crashes)
        for found in crashes.glob("*-*-*"):
            kept_at = Path(f"crash-{found.name}")
            kept_at.write_bytes(found.read_bytes())
            print(f"input kept as {kept_at}")
    attack = flood(number, arguments)
    add_up(report, decoders, attack)
    cost = core_seconds() - before[0]
    report["slices"].append(
        {
            "command": " ".join(["python -m benchmarks.fuzz", *sys.argv[1:]]),
            "date": time.strftime("%Y-%m-%d"),
            "hardware": describe_hardware(),
            "seed": number + 1,
            "seconds": round(time.monotonic() - before[1], 1),
            "core_seconds": round(cost, 1),
            "messages": report["total"] - before[2],
        }
    )
    arguments.report.write_text(json.dumps(report, indent=1) + "\n")
    rate = (report["total"] - before[2]) / cost
    print(f"slice {number + 1}: {report['total'] - before[2]:,} messages, {rate:,.0f} a core-second; {report['total']:,} in all")
    for check, holds in report["checks"].items():
        print(f"{'ok  ' if holds else 'FAIL'} {check}")
    print(f"{'ok  ' if not report['crashes'] else 'FAIL'} no crash in one process")
    return 0 if all(report["checks"].values()) and not report["crashes"] else 1


if __name__ == "__main__":
    sys.exit(main())
