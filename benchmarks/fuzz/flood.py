"""Sends hundreds of thousands of fuzzed messages to one server, and compares its counters with predictions."""

from __future__ import annotations

import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Self

import zmq

from benchmarks.fuzz.hostile_messages import (
    Hostility,
    LearnerOracle,
    bandit_bases,
    bandit_oracle,
    inference_bases,
    inference_oracle,
    learner_bases,
    parameter_server_bases,
    parameter_server_oracle,
    population_bases,
    population_oracle,
    replay_bases,
    replay_oracle,
)
from benchmarks.fuzz.insiders import INSIDERS, Insider, UnrollInsider
from herd.protocols.unrolls.messages import actor_identity
from herd.telemetry.scrape import Samples, total

if TYPE_CHECKING:
    from types import TracebackType

    from benchmarks.fuzz.hostile_messages import Oracle, Outcome
    from benchmarks.fuzz.processes import CatchRun, Process

CONNECTIONS = 32
"""Connections of one flood. Half of them read answers late: only when everything sent is counted, after some hundreds of messages. One that
never reads would be closed after 30 s, and then it is unknown which messages were read; `siege` has such connections."""
BATCH = 500
WINDOW_BYTES = 4 << 20
WINDOW_MESSAGES = 20_000
"""Maximum number of messages sent and not yet counted by the server. It closes connections that send much more than it can read, and then
it is unknown which messages it has read."""
SETTLE_SECONDS = 180.0
"""Longest time without progress while the server reads what was sent."""
KNOWN_STRANGER = actor_identity(900, 900).encode()
"""The identity in the hellos of hostile clients."""
MESSAGES_PER_ROUND = 8
"""Messages of an insider, including refused ones."""
MEBIBYTE = 1 << 20
GROWTH = 0.01
"""Maximum growth of a server's allocated memory between the second and the last quarter of a flood, or half a MiB if that is more."""


def counted(name: str, samples: Samples) -> Counter[Outcome]:
    """Return a server's counters as outcomes."""
    result: Counter[Outcome] = Counter()
    for (metric, labels), value in samples.items():
        if metric == "herd_wire_malformed_messages_total":
            result["malformed", dict(labels)["reason"]] = int(value)
        elif metric == "herd_wire_refused_messages_total":
            result["refused", dict(labels)["reason"]] = int(value)
    if name == "learner":
        result["rejected", "malformed"] = int(total(samples, "herd_learner_unrolls_dropped_total", reason="malformed"))
    if name == "paramserver":
        result["stale", ""] = int(total(samples, "herd_paramserver_stale_publishes_total"))
    return result


class Flood:
    """The messages for one server, sent in parts, and the memory of the server meanwhile."""

    def __init__(self, run: CatchRun, name: str, seed: int) -> None:
        self._run = run
        self._name = name
        self._server: Process = run[name]
        self._random = Random(f"{seed} {name}")
        self._hostility = self._make_hostility()
        self._resident: list[int] = []
        self._allocated: list[int] = []
        self._insiders: list[Insider] = []
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._dealers: list[zmq.Socket[bytes]] = []
        self._had: Samples = {}
        self._sent = 0
        self._seconds = 0.0
        self._updates = 0.0

    def __enter__(self) -> Self:
        self._had = self._server.metrics()
        self._dealers = [self._connect(number) for number in range(CONNECTIONS)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._context.destroy(linger=0)

    def _make_hostility(self) -> Hostility:
        run, names = self._run, (self._run.run_id, self._run.contract)
        oracle: Oracle
        match self._name:
            case "learner":
                bases, oracle = learner_bases(*names), LearnerOracle(*names, run.layout, run.action_repeat)
            case "bandit":
                bases, oracle = bandit_bases(run.contract), bandit_oracle()
            case "replay":
                bases, oracle = replay_bases(*names, run.layout), replay_oracle(*names, run.layout)
            case "population":
                bases, oracle = population_bases(*names), population_oracle(*names, run.settings_of_members)
            case "inference":
                bases = inference_bases(*names, run.layout)
                oracle = inference_oracle(*names, run.layout, run.settings.actor.environments)
            case _:
                bases, oracle = parameter_server_bases(*names), parameter_server_oracle(*names, is_replica=self._name == "replica")
        return Hostility(self._random, bases, oracle, MEBIBYTE + (self._name in ("paramserver", "replica")))

    def send(self, num_messages: int, deadline: float) -> None:
        """Send this many messages, or until ``deadline`` (monotonic seconds), and wait until all are counted."""
        updates, started = self._run.updates(), time.monotonic()
        self._send_all(num_messages, deadline)
        self._settle(self._expected())
        self._seconds += time.monotonic() - started
        self._updates += self._run.updates() - updates

    def sample_memory(self) -> None:
        """Measure memory. Call this after the server has returned free memory; the rest is growth."""
        self._resident.append(self._server.resident_bytes())
        self._allocated.append(self._server.anonymous_bytes())

    def finish(self, insider_share: float) -> dict[str, Any]:
        """Attack also with insiders, about this share of the messages; compare what was sent with what was counted."""
        updates = self._run.updates()
        self._attack_from_inside(max(10, round(self._sent * insider_share / MESSAGES_PER_ROUND)))
        expected = self._expected()
        got = self._settle(expected)
        self._updates += self._run.updates() - updates
        kinds = self._hostility.by_kind + sum((insider.by_kind for insider in self._insiders), Counter())
        harmless = self._hostility.expected["answered", ""]
        return {
            "messages": kinds.total(),
            "messages_per_second": round(self._sent / self._seconds),
            "by_kind": dict(sorted(kinds.items())),
            "expected": _flat(expected),
            "counted": _flat(got),
            "harmless": harmless,
            "sums_match": got == expected,
            "learner_updates": int(self._updates),
            "seconds": round(self._seconds, 1),
            "resident": _quarters(self._resident),
            "allocated": _quarters(self._allocated),
        }

    @property
    def insiders_frames(self) -> dict[tuple[int, int], int]:
        """Return the env frames that the ledger must contain as dropped{malformed}, by sender."""
        return {insider.key: insider.generated for insider in self._insiders if isinstance(insider, UnrollInsider)}

    def _connect(self, number: int) -> zmq.Socket[bytes]:
        dealer = self._context.socket(zmq.DEALER)
        identity = KNOWN_STRANGER if number == 0 else bytes([1 + number]) + self._random.randbytes(self._random.randrange(1, 200))
        dealer.setsockopt(zmq.ROUTING_ID, identity)
        dealer.setsockopt(zmq.SNDHWM, 100)
        dealer.setsockopt(zmq.SNDTIMEO, int(SETTLE_SECONDS * 1000))
        dealer.connect(f"tcp://127.0.0.1:{self._server.port}")
        return dealer

    def _send_all(self, num_messages: int, deadline: float) -> None:
        identities = [dealer.getsockopt(zmq.ROUTING_ID) for dealer in self._dealers]
        sent = num_bytes = window = 0
        while sent < num_messages and time.monotonic() < deadline:
            for kind in self._hostility.batch(min(BATCH, num_messages - sent)):
                number = self._random.randrange(CONNECTIONS)
                frames = self._hostility.make(kind, identities[number])
                self._dealers[number].send_multipart(frames)
                sent += 1
                num_bytes += sum(map(len, frames)) + 10 * len(frames)
            window += BATCH
            self._discard_answers(self._dealers[: CONNECTIONS // 2])
            if num_bytes > WINDOW_BYTES or window > WINDOW_MESSAGES:
                expected = self._expected()
                if self._settle(expected).total() < expected.total():
                    break  # some messages are lost: the final sums will show it
                num_bytes = window = 0
        self._sent += sent

    def _attack_from_inside(self, num_rounds: int) -> None:
        run, context, port = self._run, self._context, self._server.port or 0
        if self._name == "learner":
            self._insiders = [UnrollInsider(run, context, port, 901 + number, self._random) for number in range(3)]
        elif self._name in INSIDERS:
            self._insiders = [INSIDERS[self._name](run, context, port, b"insider/%d" % number, self._random) for number in range(3)]
        for number in range(num_rounds if self._insiders else 0):
            self._insiders[number % len(self._insiders)].attack()
        for insider in self._insiders:
            insider.leave()

    def _expected(self) -> Counter[Outcome]:
        everything = self._hostility.expected + sum((insider.expected for insider in self._insiders), Counter())
        return Counter({outcome: number for outcome, number in everything.items() if outcome[0] != "answered"})

    def _settle(self, expected: Counter[Outcome]) -> Counter[Outcome]:
        """Wait until everything sent is counted; return the counts."""
        had = counted(self._name, self._had)
        last, deadline = -1, time.monotonic() + SETTLE_SECONDS
        while True:
            self._discard_answers(self._dealers)
            now = counted(self._name, self._server.metrics())
            got = Counter({outcome: now[outcome] - had[outcome] for outcome in now if now[outcome] != had[outcome]})
            if got.total() >= expected.total() or time.monotonic() > deadline:
                return got
            if got.total() > last:
                last, deadline = got.total(), time.monotonic() + SETTLE_SECONDS
            time.sleep(0.02)

    @staticmethod
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
    """Return the mean memory of the second and of the last quarter, and the growth between them."""
    quarter = len(samples) // 4
    if quarter == 0:
        return {"samples": samples}
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    before, after = sum(second) / quarter, sum(last) / quarter
    return {
        "samples": samples,
        "second_quarter_bytes": round(before),
        "last_quarter_bytes": round(after),
        "growth": round(after / before - 1, 5),
        "flat": after - before <= max(GROWTH * before, MEBIBYTE / 2),
    }
