"""Sends fuzzed messages to every listening socket of real processes.

They are parameter server, replica, bandit, replay, population, inference, learner and one honest actor on Catch over loopback. Each server
gets fuzzed messages of many kinds over many connections; foreign protocols, oversized frames and endless messages; thousands of half-open
connections; and garbage at its metrics port. Meanwhile the honest run continues. The decision code without sockets predicts every message,
and the sums of /metrics must equal those of the predictions.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING, Any

from benchmarks.fuzz import strangers
from benchmarks.fuzz.flood import Flood
from benchmarks.fuzz.processes import CatchRun
from herd.service.allocator import RETURN_SECONDS
from herd.telemetry.scrape import total

if TYPE_CHECKING:
    from pathlib import Path

MAX_RESIDENT_BYTES = 1 << 30
"""Maximum growth of a server's memory at any moment of a siege: 30 times the 16 MiB that may be unread, and as much again for what arrives
between two checks."""
SERVERS = ("learner", "paramserver", "replica", "bandit", "replay", "population", "inference")


def finish(run: CatchRun, insiders: dict[tuple[int, int], int]) -> dict[str, Any]:
    """End the run; check that the ledger contains every frame, and that no hostile frame was trained on."""
    learner = run["learner"].metrics()
    returned = total(learner, "herd_learner_episode_return_mean_100")
    codes = run.end()
    report, accounts = run.report(), run.accounts()
    accounting = report["accounting"]
    honest = sum(generated for (index, _), generated in accounts.items() if index == 0)
    hostile = {key: generated for key, generated in accounts.items() if key[0] != 0}
    return {
        "exit_codes": codes,
        "accounting": accounting,
        "balanced": accounting["generated"] == accounting["consumed"] + accounting["in_flight"] + sum(accounting["dropped"].values()),
        "honest_frames": honest,
        "strangers_frames": sum(hostile.values()),
        "nothing_consumed_from_strangers": hostile == {key: generated for key, generated in insiders.items() if generated}
        and accounting["dropped"].get("malformed", 0) == sum(hostile.values())
        and accounting["consumed"] + accounting["in_flight"] == honest,
        "learner_updates": report["learner_updates"],
        "episode_return_mean_100": returned,
    }


def checks(result: dict[str, Any]) -> dict[str, bool]:
    """Return the checks and whether they hold."""
    floods, sieges, end = result["floods"], result["sieges"], result["end"]
    return {
        "every process lived and ended with 0": set(end["exit_codes"].values()) == {0},
        "every refused message counted, by reason": all(flood["sums_match"] for flood in floods.values()),
        "memory flat": all(flood["allocated"].get("flat", True) for flood in floods.values()),
        # Short floods last only a second or two, so they are judged together.
        "learning went on": sum(flood["learner_updates"] for flood in floods.values()) > 0
        and all(siege["learner_updates"] > 0 for siege in sieges.values()),
        "the ledger balances": end["balanced"],
        "nothing consumed from strangers": end["nothing_consumed_from_strangers"],
        "memory bounded": all(s["resident_peak_bytes"] - s["resident_before_bytes"] < MAX_RESIDENT_BYTES for s in sieges.values()),
        "messages without end were cut off": all(siege["connections_cut"].get("unread", 2) >= 2 for siege in sieges.values()),
        "who reads no answers was let go": all(siege["deaf_hung_up_on"] == siege["deaf_connections"] for siege in sieges.values()),
        "half-open connections were let go": all(siege["half_open_left_at_the_end"] == 0 for siege in sieges.values()),
        "every scrape went through": not any(port["scrapes_failed"] for port in result["metrics"].values()),
    }


def attack(arguments: argparse.Namespace, run_dir: Path) -> dict[str, Any]:
    """Run all attacks."""
    result: dict[str, Any] = {"floods": {}, "sieges": {}, "metrics": {}}
    insiders: dict[tuple[int, int], int] = {}
    with CatchRun(run_dir) as run:
        with ExitStack() as stack:
            floods = {name: stack.enter_context(Flood(run, name, arguments.seed)) for name in arguments.servers}
            _flood(floods, arguments, deadline=time.monotonic() + 60.0 * arguments.minutes)
            for name, flood in floods.items():
                result["floods"][name] = flood.finish(arguments.insider_share)
                insiders |= flood.insiders_frames
                _print_flood(name, result["floods"][name])
        for name in arguments.servers if arguments.sieges is None else arguments.sieges:
            limits = {"nonsense": arguments.nonsense, "half_open": arguments.half_open, "deaf": arguments.deaf}
            result["sieges"][name] = strangers.besiege(run, name, arguments.seed, seconds=arguments.hold_seconds, **limits)
            _print_siege(name, result["sieges"][name])
        for name, process in run.processes.items():
            assert process.metrics_port is not None
            tried, failures = strangers.besiege_metrics(process.metrics_port, Random(f"{arguments.seed} {name} http"), arguments.http)
            result["metrics"][name] = {"connections": arguments.http, "scrapes_tried": tried, "scrapes_failed": failures}
            for failure in failures:
                print(f"{name:<12} {failure}", flush=True)
        result["end"] = finish(run, insiders)
    result["checks"] = checks(result)
    return result


def _flood(floods: dict[str, Flood], arguments: argparse.Namespace, deadline: float) -> None:
    """Flood all servers in turn, so that all have received equally many at the deadline; after each turn, when free memory is returned,
    measure."""
    num_messages, turns = arguments.messages, arguments.turns
    for number in range(turns):
        for flood in floods.values():
            flood.send(num_messages * (number + 1) // turns - num_messages * number // turns, deadline)
        time.sleep(arguments.rest_seconds)
        for flood in floods.values():
            flood.sample_memory()
        print(f"turn {number + 1} of {turns}", file=sys.stderr, flush=True)


def _print_flood(name: str, flood: dict[str, Any]) -> None:
    growth = " ".join(f"{what} {flood[what]['growth']:+.2%}" for what in ("resident", "allocated") if "growth" in flood[what])
    sums = "match" if flood["sums_match"] else "DIFFER"
    said = f"{flood['messages']:>10,} messages, {flood['messages_per_second']:>7,}/s, sums {sums}"
    print(f"{name:<12}{said}, {growth}, {flood['learner_updates']:,} updates meanwhile", flush=True)
    for outcome in sorted({*flood["expected"], *flood["counted"]}) if sums == "DIFFER" else ():
        print(f"    {outcome}: expected {flood['expected'].get(outcome, 0)}, counted {flood['counted'].get(outcome, 0)}")


def _print_siege(name: str, siege: dict[str, Any]) -> None:
    said = (
        f"{siege['half_open_connections']:>10,} half-open, {siege['nonsense_connections']:,} foreign",
        f"cut {siege['connections_cut']}, handshakes failed {siege['handshakes_failed']}",
        f"peak {siege['resident_peak_bytes'] >> 20} MiB",
        f"{siege['learner_updates']:,} updates meanwhile",
    )
    print(f"{name:<12}" + "; ".join(said), flush=True)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="against each server")
    parser.add_argument("--minutes", type=float, default=math.inf, help="for all messages together, at most; the report says how many went")
    parser.add_argument(
        "--rest-seconds",
        type=float,
        default=RETURN_SECONDS + 5.0,
        help="after each turn, before memory is looked at: every server then gives back what it no longer holds (default: 35)",
    )
    parser.add_argument("--turns", type=int, default=20, help="in which the servers get their messages, one after the other (20)")
    parser.add_argument("--insider-share", type=float, default=0.01, help="as many more from strangers whom the learner lets in")
    parser.add_argument("--servers", nargs="*", default=list(SERVERS), choices=SERVERS)
    parser.add_argument("--sieges", nargs="*", choices=SERVERS, help="servers to attack below the level of messages; default: the same")
    parser.add_argument("--nonsense", type=int, default=2_000, help="connections with foreign protocols, each server")
    parser.add_argument("--half-open", type=int, default=4_000, help="connections, each server")
    parser.add_argument("--hold-seconds", type=float, default=15.0, help="for which they are held")
    parser.add_argument("--deaf", type=int, default=3, help="connections that ask and never read, each server")
    parser.add_argument("--http", type=int, default=1_000, help="connections to each metrics port")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(argv)
