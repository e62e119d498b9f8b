"""A million fuzzed messages against every listening socket of real processes: ``python -m benchmarks.fuzz.sockets --output FILE``.

Starts parameter server, replica, bandit, learner and one honest actor on Catch over loopback. Then, for each server: fuzzed messages
of many kinds over many connections; foreign protocols, frames too large, messages that never end; thousands of half-open connections;
the same at its metrics port. The honest run goes on beside. Every message is predicted by the decision code without sockets, and
the sums of /metrics must equal the sums of the predictions. Prints a table, writes a report, ends with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import zmq

from benchmarks.fuzz import strangers
from benchmarks.fuzz.hostile_messages import (
    BanditOracle,
    Hostility,
    LearnerOracle,
    ParameterServerOracle,
    bandit_bases,
    learner_bases,
    parameter_server_bases,
)
from benchmarks.fuzz.insiders import Insider
from benchmarks.fuzz.processes import CatchRun, Process
from herd.bench.hardware import describe_hardware
from herd.telemetry.scrape import Samples, total
from herd.wire.messages import actor_identity

if TYPE_CHECKING:
    from benchmarks.fuzz.hostile_messages import Outcome

SERVERS = ("learner", "paramserver", "replica", "bandit")
CONNECTIONS = 32
"""That the messages of one flood come over; half of them never read an answer."""
BATCH = 500
WINDOW_BYTES = 4 << 20
WINDOW_MESSAGES = 20_000
"""Sent beyond what the server has counted: it cuts off who sends much more than it can read, and then nobody could say what it read."""
SAMPLE_SECONDS = 0.5
SETTLE_SECONDS = 180.0
"""For the server to read what was sent, without any progress."""
KNOWN_STRANGER = actor_identity(900, 900).encode()
"""The identity that the strangers' hellos belong to."""
MEBIBYTE = 1 << 20
GROWTH = 0.01
"""Of what a server has allocated, between the second and the last quarter of a flood, at most; or half a MiB, where that is more."""


def counted(name: str, samples: Samples) -> Counter[Outcome]:
    """What a server has counted, as outcomes."""
    result: Counter[Outcome] = Counter()
    for (metric, labels), value in samples.items():
        if metric == "herd_wire_malformed_messages_total":
            result["malformed", dict(labels)["reason"]] = int(value)
        elif metric == "herd_wire_refused_messages_total":
            result["refused", dict(labels)["reason"]] = int(value)
    if name == "bandit":
        result["refused", "run"] = int(total(samples, "herd_bandit_requests_total", outcome="refused"))
    if name == "learner":
        result["rejected", "malformed"] = int(total(samples, "herd_learner_unrolls_dropped_total", reason="malformed"))
    if name == "paramserver":
        result["stale", ""] = int(total(samples, "herd_paramserver_stale_publishes_total"))
    return result


class Flood:
    """The messages against one server, and what becomes of it meanwhile."""

    def __init__(self, run: CatchRun, name: str, seed: int) -> None:
        self._run = run
        self._name = name
        self._server: Process = run[name]
        self._random = Random(f"{seed} {name}")
        self._hostility = self._make_hostility()
        self._resident: list[int] = []
        self._allocated: list[int] = []
        self._insiders: list[Insider] = []

    def _make_hostility(self) -> Hostility:
        run = self._run
        if self._name == "learner":
            oracle = LearnerOracle(run.run_id, run.contract, run.layout, run.action_repeat)
            return Hostility(self._random, learner_bases(run.run_id, run.contract), oracle, MEBIBYTE)
        if self._name == "bandit":
            return Hostility(self._random, bandit_bases(run.contract), BanditOracle(), MEBIBYTE)
        weights = ParameterServerOracle(run.run_id, run.contract, is_replica=self._name == "replica")
        return Hostility(self._random, parameter_server_bases(run.run_id, run.contract), weights, MEBIBYTE + 1)

    def run(self, num_messages: int, num_insider_rounds: int) -> dict[str, Any]:
        """Send, wait until all is read, and compare."""
        before = self._had = self._server.metrics()
        updates = self._run.updates()
        started = time.monotonic()
        with zmq.Context() as context:
            dealers = self._connect(context)
            self._send_all(dealers, num_messages)
            sent_seconds = time.monotonic() - started
            self._attack_from_inside(context, num_insider_rounds)
            expected = self._expected()
            got = self._settle(before, expected, dealers)
            for dealer in dealers:
                dealer.close(linger=0)
        seconds = time.monotonic() - started
        kinds = self._hostility.by_kind + sum((insider.by_kind for insider in self._insiders), Counter())
        harmless = self._hostility.expected["answered", ""]
        return {
            "messages": kinds.total(),
            "messages_per_second": round(num_messages / sent_seconds),
            "by_kind": dict(sorted(kinds.items())),
            "expected": _flat(expected),
            "counted": _flat(got),
            "harmless": harmless,
            "sums_match": got == expected,
            "learner_updates": int(self._run.updates() - updates),
            "seconds": round(seconds, 1),
            "resident": _quarters(self._resident),
            "allocated": _quarters(self._allocated),
        }

    @property
    def insiders_frames(self) -> dict[tuple[int, int], int]:
        """Env frames that the ledger must hold as dropped{malformed}, by who sent them."""
        return {insider.key: insider.generated for insider in self._insiders}

    def _connect(self, context: zmq.Context[zmq.Socket[bytes]]) -> list[zmq.Socket[bytes]]:
        dealers = []
        for number in range(CONNECTIONS):
            dealer = context.socket(zmq.DEALER)
            identity = KNOWN_STRANGER if number == 0 else bytes([1 + number]) + self._random.randbytes(self._random.randrange(1, 200))
            dealer.setsockopt(zmq.ROUTING_ID, identity)
            dealer.setsockopt(zmq.SNDHWM, 100)
            dealer.setsockopt(zmq.SNDTIMEO, int(SETTLE_SECONDS * 1000))
            dealer.connect(f"tcp://127.0.0.1:{self._server.port}")
            dealers.append(dealer)
        return dealers

    def _send_all(self, dealers: list[zmq.Socket[bytes]], num_messages: int) -> None:
        sample_at = 0.0
        identities = [dealer.getsockopt(zmq.ROUTING_ID) for dealer in dealers]
        sent = num_bytes = window = 0
        while sent < num_messages:
            for kind in self._hostility.batch(min(BATCH, num_messages - sent)):
                number = self._random.randrange(CONNECTIONS)
                frames = self._hostility.make(kind, identities[number])
                dealers[number].send_multipart(frames)
                sent += 1
                num_bytes += sum(map(len, frames)) + 10 * len(frames)
            window += BATCH
            _discard_answers(dealers[: CONNECTIONS // 2])
            if num_bytes > WINDOW_BYTES or window > WINDOW_MESSAGES:
                self._settle(self._had, self._expected(), dealers)
                num_bytes = window = 0
            now = time.monotonic()
            if now >= sample_at:
                sample_at = now + SAMPLE_SECONDS
                self._resident.append(self._server.resident_bytes())
                self._allocated.append(self._server.anonymous_bytes())

    def _attack_from_inside(self, context: zmq.Context[zmq.Socket[bytes]], num_rounds: int) -> None:
        if self._name != "learner":
            return
        run = self._run
        self._insiders = [
            Insider(context, self._server.port or 0, 901 + number, self._random, run.layout, run.action_repeat) for number in range(3)
        ]
        for insider in self._insiders:
            insider.join(run.run_id, run.contract)
        for number in range(num_rounds):
            self._insiders[number % len(self._insiders)].attack()
        for insider in self._insiders:
            insider.leave()

    def _expected(self) -> Counter[Outcome]:
        everything = self._hostility.expected + sum((insider.expected for insider in self._insiders), Counter())
        return Counter({outcome: number for outcome, number in everything.items() if outcome[0] != "answered"})

    def _settle(self, before: Samples, expected: Counter[Outcome], dealers: list[zmq.Socket[bytes]]) -> Counter[Outcome]:
        """Wait until as much is counted as was sent; what was counted."""
        had = counted(self._name, before)
        last, deadline = -1, time.monotonic() + SETTLE_SECONDS
        while True:
            _discard_answers(dealers[: CONNECTIONS // 2])
            now = counted(self._name, self._server.metrics())
            got = Counter({outcome: now[outcome] - had[outcome] for outcome in now if now[outcome] != had[outcome]})
            if got.total() >= expected.total() or time.monotonic() > deadline:
                return got
            if got.total() > last:
                last, deadline = got.total(), time.monotonic() + SETTLE_SECONDS
            time.sleep(0.02)


def _discard_answers(dealers: list[zmq.Socket[bytes]]) -> None:
    for dealer in dealers:
        try:
            while True:
                dealer.recv_multipart(zmq.DONTWAIT, copy=False)
        except zmq.Again:
            continue


def _flat(outcomes: Counter[Outcome]) -> dict[str, int]:
    return {" ".join(filter(None, outcome)): number for outcome, number in sorted(outcomes.items())}


def _quarters(samples: list[int]) -> dict[str, Any]:
    """Mean resident memory of the second and of the last quarter, and the growth between them."""
    quarter = len(samples) // 4
    if quarter == 0:
        return {"samples": len(samples)}
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    before, after = sum(second) / quarter, sum(last) / quarter
    is_flat = after - before <= max(GROWTH * before, MEBIBYTE / 2)
    growth = round(after / before - 1, 5)
    return {
        "samples": len(samples),
        "second_quarter_bytes": round(before),
        "last_quarter_bytes": round(after),
        "growth": growth,
        "flat": is_flat,
    }


def besiege(run: CatchRun, name: str, seed: int, *, nonsense: int, half_open: int, seconds: float, http: int) -> dict[str, Any]:
    """Everything below the level of messages, against one server; what it counted, and whether honest work went on."""
    server = run[name]
    assert server.port is not None
    assert server.metrics_port is not None
    random = Random(f"{seed} {name} raw")
    before, updates = server.metrics(), run.updates()
    resident = server.resident_bytes()
    accepted = strangers.talk_nonsense(server.port, random, nonsense)
    hung_up = strangers.announce_too_much(server.port, 5)
    let_through = {
        "frames of 1 MiB": strangers.never_end(server.port, frame_bytes=MEBIBYTE, most_bytes=8 << 30),
        "frames of 1 byte": strangers.never_end(server.port, frame_bytes=1, most_bytes=1 << 30),
    }
    blind = strangers.flood_blindly(server.port, random, 300_000)
    peak = server.resident_bytes()
    connections: list[int] = []

    def meanwhile(living: int) -> None:
        connections.append(int(total(server.metrics(), "herd_wire_connections")))
        survivors.append(living)

    survivors: list[int] = []
    held = strangers.hold_half_open(server.port, half_open, seconds, meanwhile)
    scraped = strangers.besiege_metrics(server.metrics_port, random, http)
    after = server.metrics()

    def grown(metric: str, **labels: str) -> int:
        return int(total(after, metric, **labels) - total(before, metric, **labels))

    return {
        "nonsense_connections": accepted,
        "oversized_frames_hung_up_on": hung_up,
        "endless_messages_let_through_bytes": let_through,
        "blind_flood_let_through_messages": blind,
        "half_open_connections": held,
        "half_open_left_at_the_end": survivors[-1] if survivors else 0,
        "most_connections_at_once": max(connections, default=0),
        "scrapes_through": scraped[0],
        "scrapes_tried": scraped[1],
        "handshakes_failed": {
            reason: grown("herd_wire_authentication_failures_total", reason=reason) for reason in ("incomplete", "protocol", "mechanism")
        },
        "connections_cut": {cause: grown("herd_wire_connections_cut_total", cause=cause) for cause in ("crowd", "unread")},
        "malformed_out_of_garbage": grown("herd_wire_malformed_messages_total"),
        "learner_updates": int(run.updates() - updates),
        "resident_before_bytes": resident,
        "resident_peak_bytes": peak,
        "resident_after_bytes": server.resident_bytes(),
    }


def finish(run: CatchRun, insiders: dict[tuple[int, int], int]) -> dict[str, Any]:
    """End the run; is every frame in its account, and none of a stranger's among those that were learned from?"""
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
    """What must be true."""
    floods, sieges, end = result["floods"], result["sieges"], result["end"]
    return {
        "every process lived and ended with 0": set(end["exit_codes"].values()) == {0},
        "every refused message counted, by reason": all(flood["sums_match"] for flood in floods.values()),
        "memory flat": all(flood["allocated"].get("flat", True) for flood in floods.values()),
        "learning went on": all(phase["learner_updates"] > 0 for phase in [*floods.values(), *sieges.values()]),
        "the ledger balances": end["balanced"],
        "nothing consumed from strangers": end["nothing_consumed_from_strangers"],
        "messages without end were cut off": all(siege["connections_cut"].get("unread", 2) >= 2 for siege in sieges.values()),
        "half-open connections were let go": all(siege["half_open_left_at_the_end"] == 0 for siege in sieges.values()),
        "every scrape went through": all(siege["scrapes_through"] == siege["scrapes_tried"] for siege in sieges.values()),
    }


def attack(arguments: argparse.Namespace, run_dir: Path) -> dict[str, Any]:
    """Do all of it."""
    result: dict[str, Any] = {"floods": {}, "sieges": {}}
    insiders: dict[tuple[int, int], int] = {}
    with CatchRun(run_dir) as run:
        for name in arguments.servers:
            flood = Flood(run, name, arguments.seed)
            rounds = max(10, round(arguments.messages * arguments.insider_share / 10))
            result["floods"][name] = flood.run(arguments.messages, rounds)
            insiders |= flood.insiders_frames
            _print_flood(name, result["floods"][name])
        for name in arguments.servers:
            limits = {"nonsense": arguments.nonsense, "half_open": arguments.half_open, "http": arguments.http}
            result["sieges"][name] = besiege(run, name, arguments.seed, seconds=arguments.hold_seconds, **limits)
            _print_siege(name, result["sieges"][name])
        result["end"] = finish(run, insiders)
    result["checks"] = checks(result)
    return result


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
        f"scrapes {siege['scrapes_through']}/{siege['scrapes_tried']}, peak {siege['resident_peak_bytes'] >> 20} MiB",
        f"{siege['learner_updates']:,} updates meanwhile",
    )
    print(f"{name:<12}" + "; ".join(said), flush=True)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000, help="against each server")
    parser.add_argument("--insider-share", type=float, default=0.01, help="as many more from strangers whom the learner lets in")
    parser.add_argument("--servers", nargs="*", default=list(SERVERS), choices=SERVERS)
    parser.add_argument("--nonsense", type=int, default=2_000, help="connections with foreign protocols, each server")
    parser.add_argument("--half-open", type=int, default=4_000, help="connections, each server")
    parser.add_argument("--hold-seconds", type=float, default=15.0, help="for which they are held")
    parser.add_argument("--http", type=int, default=1_000, help="connections to each metrics port")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="the report, as JSON")
    return parser.parse_args(argv)


def main() -> int:
    arguments = parse()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        result = attack(arguments, Path(temporary) / "run")
    report = {
        "command": " ".join(["python -m benchmarks.fuzz.sockets", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "hardware": describe_hardware(),
        "seconds": round(time.monotonic() - started, 1),
        **result,
    }
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    for check, holds in result["checks"].items():
        print(f"{'ok  ' if holds else 'FAIL'} {check}")
    return 0 if all(result["checks"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
