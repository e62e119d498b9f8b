"""What a hostile client can do to a parameter server: a refused message changes nothing, and memory and work are bounded."""

from __future__ import annotations

import copy
import hashlib
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from herd_paramserver.requests import Answer
from herd_paramserver.store import UPDATES_LEAD, Version
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from herd.protocols.unrolls.messages import Ack
from herd.protocols.weights.client import WeightsPublisher
from herd.protocols.weights.messages import (
    MAX_FIRST_LINEAGE,
    WEIGHTS,
    AgentEnded,
    GetWeights,
    LeaseIndex,
    NotModified,
    Published,
    PublishHeartbeat,
    PublishSlice,
    ReleaseIndex,
    StalePublish,
    Weights,
)
from herd.rpc.codec import MalformedMessage, encode
from herd.rpc.envelope import Message, Refused
from herd.telemetry import metrics
from herd.transport import Peer
from tests.paramserver.asking import CONTRACT, RUN, Root
from tests.wire.hostile_bytes import mutated_frames

MAX_LEASES = 3
MAX_VERSION_BYTES = 64


class Server(Root):
    """A root of two agents with little memory."""

    def __init__(self) -> None:
        super().__init__(2, max_leases=MAX_LEASES, max_version_bytes=MAX_VERSION_BYTES)

    def receive(self, frames: list[bytes], now: float = 0.0) -> Answer:
        """Receive one message as it arrives; checks that the answer can be sent."""
        reply = self.ask(frames, peer=Peer(b"stranger"), now=now)
        if reply.message is not None:
            assert WEIGHTS.decode(encode(reply.message)[0]) == reply.message
            assert reply.label in metrics.REFUSAL_REASONS
        return reply

    def check(self) -> None:
        """Check that only published weights are served, and that memory is bounded."""
        for store in self.stores:
            if store.visible is not None:
                assert tuple(hashlib.sha256(payload).hexdigest() for payload in store.visible.payloads) == store.visible.digests
            assert store.num_bytes <= 2 * MAX_VERSION_BYTES
        assert len(self.leases) <= MAX_LEASES

    def state(self) -> tuple[Any, ...]:
        """The state that a refused message must not change."""
        held = tuple((store.visible, store.assembling, store.newest, store.num_bytes) for store in self.stores)
        return (held, self.leases.holders(), copy.deepcopy(self.liveness._agents))


def publication(lineage: int, updates: int, payload: bytes, *, index: int = 0, count: int = 1) -> list[bytes]:
    digest = hashlib.sha256(payload).hexdigest()
    message = PublishSlice(run=RUN, agent=0, contract=CONTRACT, lineage=lineage, updates=updates, index=index, count=count, digest=digest)
    return framed(message, payload)


def framed(message: Message, *payloads: bytes) -> list[bytes]:
    return [bytes(encode(message)[0]), *payloads]


class Wire:
    """Stands in for the publisher's DEALER; the server answers at once."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.answers: deque[list[bytes]] = deque()

    def send(self, frames: list[bytes]) -> bool:
        reply = self.server.receive([bytes(frame) for frame in frames])
        if reply.message is not None:
            self.answers.append(framed(reply.message))
        return True

    def receive(self) -> list[bytes] | None:
        return self.answers.popleft() if self.answers else None


@pytest.mark.parametrize("is_empty", [True, False])
def test_lineages_that_no_learner_can_exceed_are_refused(is_empty: bool) -> None:
    """The lineage is neither published nor claimed: the learner's next version becomes visible as if nothing had happened."""
    server = Server()
    if not is_empty:
        server.receive(publication(1, 0, b"weights"))
    for lie in (
        publication(2**63 - 1, 2**63 - 1, b"lies"),
        publication(2**63 - 2, 0, b"lies", count=2),
        framed(PublishHeartbeat(run=RUN, agent=0, contract=CONTRACT, lineage=2**63 - 1, updates=1, index=0, count=1)),
        framed(AgentEnded(id=6, run=RUN, agent=0, contract=CONTRACT, lineage=2**63 - 1)),
    ):
        before = server.state()
        reply = server.receive(lie)
        assert isinstance(reply.message, Refused)
        assert reply.label == "ahead"
        assert server.state() == before
    reply = server.receive(publication(1, 1, b"weights"))
    assert reply.message == Published(lineage=1, updates=1, index=0)


@pytest.mark.parametrize(
    ("lie", "count"),
    [
        (Version(MAX_FIRST_LINEAGE, 7), 1),
        (Version(1, UPDATES_LEAD), 1),
        # With one slice of two, no honest version of the lineage could ever be complete.
        (Version(1, UPDATES_LEAD), 2),
        (Version(9, 0), 2),
    ],
)
def test_an_overtaken_learner_continues_in_a_new_lineage(lie: Version, count: int) -> None:
    server = Server()
    server.receive(publication(*lie, b"lies", count=count))
    context: Any = SimpleNamespace(client=lambda *_: Wire(server))
    shards = [WeightsPublisher(context, "tcp://root", run_id=RUN, contract=CONTRACT) for _ in range(2)]
    for index, shard in enumerate(shards):
        shard.publish(1, 1, index, 2, b"weights")
        shard.poll()
        assert shard.newer_lineage == lie.lineage
    for index, shard in enumerate(shards):
        shard.publish(lie.lineage + 1, 1, index, 2, b"weights")
        shard.poll()
    assert all(shard.confirmed for shard in shards)
    assert server.store.visible is not None
    assert server.store.visible.version == (lie.lineage + 1, 1)


# -- arbitrary bytes


VALID = [
    publication(1, 1, b"weights"),
    publication(1, 2, b"first", count=2),
    publication(1, 2, b"second", index=1, count=2),
    publication(2, 0, b"x" * (MAX_VERSION_BYTES + 1)),
    [publication(2, 1, b"what was meant")[0], b"what arrived"],
    framed(GetWeights(id=5, run=RUN, agent=0, contract=CONTRACT, have=(1, 0))),
    framed(GetWeights(id=5, run="another", agent=0, contract=CONTRACT, have=None)),
    framed(PublishHeartbeat(run=RUN, agent=0, contract=CONTRACT, lineage=1, updates=1, index=0, count=1)),
    framed(AgentEnded(id=6, run=RUN, agent=1, contract=CONTRACT, lineage=0)),
    framed(LeaseIndex(id=7, run=RUN, client="f00d", place=(0, 2))),
    framed(ReleaseIndex(run=RUN, client="f00d")),
    framed(Ack(sequence=1, granted_unrolls=1)),
    framed(Weights(id=1, lineage=9, updates=9, digests=("ab" * 32,)), b"weights"),
]


class Attacked(RuleBasedStateMachine):
    """A learner publishes, and an actor reads and leases; an attacker sends anything, including messages recorded from both."""

    @initialize()
    def start(self) -> None:
        self.server = Server()
        self.now = 0.0
        self.version = Version(1, 0)
        self.overheard = [list(frames) for frames in VALID]
        self.seen: Version | None = None
        self.newest: Version | None = None

    @rule(event=st.sampled_from(["publish", "read", "lease", "wait", "attack", "attack", "attack"]), data=st.data())
    def happens(self, event: str, data: st.DataObject) -> None:
        getattr(self, f"_{event}")(data.draw)

    def _honest(self, frames: list[bytes]) -> Message | None:
        self.overheard.append(frames)
        reply = self.server.receive(frames, self.now)
        return reply.message

    def _publish(self, _draw: Any) -> None:
        """Publish the next version as the learner does, in a greater lineage if another version was ahead."""
        version = Version(self.version.lineage, self.version.updates + 1)
        payload = b"version %d" % version.updates
        answer = self._honest(publication(*version, payload))
        if isinstance(answer, StalePublish):
            version = Version(answer.lineage + 1, version.updates)
            answer = self._honest(publication(*version, payload))
        assert answer == Published(lineage=version.lineage, updates=version.updates, index=0)
        self.version = version

    def _read(self, draw: Any) -> None:
        have = draw(st.sampled_from([None, self.seen]))
        self.overheard.append(framed(GetWeights(id=1, run=RUN, agent=0, contract=CONTRACT, have=have)))
        reply = self.server.receive(self.overheard[-1], self.now)
        if isinstance(reply.message, Weights):
            version = Version(reply.message.lineage, reply.message.updates)
            assert self.seen is None or version > self.seen or have is None
            assert self.seen is None or version >= self.seen
            assert tuple(hashlib.sha256(payload).hexdigest() for payload in reply.payloads) == reply.message.digests
            self.seen = version
        else:
            assert isinstance(reply.message, NotModified)

    def _lease(self, _draw: Any) -> None:
        self._honest(framed(LeaseIndex(id=1, run=RUN, client="honest", place=None)))
        held = self.server.leases.holders()
        assert len(set(held.values())) == len(held)

    def _wait(self, draw: Any) -> None:
        self.now += draw(st.sampled_from([1.0, 29.0]))
        self.server.handler.tick(self.now)

    def _attack(self, draw: Any) -> None:
        frames = draw(mutated_frames(self.overheard))
        before = self.server.state()
        self.server.leases.expire(self.now)
        try:
            reply = self.server.receive(frames, self.now)
        except MalformedMessage:
            assert self.server.state() == before
            return
        if isinstance(reply.message, Refused | StalePublish):
            assert self.server.state() == before

    @invariant()
    def versions_never_go_back(self) -> None:
        if not hasattr(self, "server"):
            return
        visible = self.server.store.visible
        if visible is not None:
            assert self.newest is None or visible.version >= self.newest
            self.newest = visible.version
        self.server.check()


Attacked.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    # Shrinking a failure of that many steps would exceed the time-out of a test.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
TestAttacked = Attacked.TestCase
