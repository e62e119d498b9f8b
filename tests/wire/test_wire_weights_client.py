"""Client and publisher against a root, over loopback. One thread drives all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random

import pytest
from herd_paramserver.store import Version as StoredVersion

from herd.protocols.weights.client import PAUSE_SECONDS, Version, WeightsClient, WeightsFrame, WeightsPublisher
from herd.protocols.weights.messages import (
    WEIGHTS,
    AgentEnded,
    GetWeights,
    PublishHeartbeat,
    PublishSlice,
    Weights,
)
from herd.rpc.codec import encode, payload_digest
from herd.rpc.envelope import Message, Refused
from herd.transport import Limits, Peer
from herd.transport.context import Context, Poller
from tests.paramserver.asking import CONTRACT, RUN, Root

DEADLINE_SECONDS = 20.0


class Serving:
    """A root behind a socket. It may fall silent, refuse, or name other digests than those of its slices."""

    def __init__(self) -> None:
        self.root = Root()
        self.published: list[Version] = []
        self.seen: list[Message] = []
        self.digests: tuple[str, ...] | None = None
        self.refusal: str | None = None
        self.answers = True
        self.context = Context()
        self.router = self.context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=1 << 20))
        self.endpoint = self.router.endpoint
        self.poller = Poller(self.router)

    def stop(self) -> None:
        self.router.close()
        self.context.destroy(linger=0)

    def hold(self, version: Version, *slices: bytes) -> None:
        """Keep this version, as if it had been published."""
        for index, payload in enumerate(slices):
            message = {"index": index, "count": len(slices), "digest": payload_digest(payload)}
            self.root.store.publish(StoredVersion(*version), **message, payload=memoryview(payload))  # type: ignore[arg-type]

    def pump(self) -> None:
        self.poller.poll(0.005)
        while (received := self.router.receive()) is not None:
            peer, frames = received
            self.seen.append(WEIGHTS.decode(frames[0]))
            if self.answers:
                self.answer(peer, frames)

    def answer(self, peer: Peer, frames: list[memoryview]) -> None:
        if self.refusal is not None:
            self.router.send(peer, encode(Refused(id=0, reason=self.refusal)))
            return
        reply = self.root.ask(frames, peer=peer)
        if (new := reply.new_version) is not None:
            self.published.append((new.lineage, new.updates))
        message = reply.message
        assert message is not None
        if isinstance(message, Weights) and self.digests is not None:
            message = message.model_copy(update={"digests": self.digests})
        self.router.send(peer, [*encode(message), *reply.payloads])


@pytest.fixture
def server() -> Iterator[Serving]:
    made = Serving()
    yield made
    made.stop()


@pytest.fixture
def client(server: Serving, context: Context) -> Iterator[WeightsClient]:
    made = WeightsClient(context, server.endpoint, run_id=RUN, contract=CONTRACT, random=Random(0))
    yield made
    made.close()


@pytest.fixture
def publisher(server: Serving, context: Context) -> Iterator[WeightsPublisher]:
    made = WeightsPublisher(context, server.endpoint, run_id=RUN, contract=CONTRACT, random=Random(0))
    yield made
    made.close()


def until(condition: Callable[[], bool], server: Serving, *pumps: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"nothing happened; the server saw {server.seen[-5:]}"
        for pump in pumps:
            pump()
        server.pump()


def pull(client: WeightsClient, server: Serving, have: Version | None) -> WeightsFrame | None:
    """Send one request, and wait for its answer."""
    client.request(have)
    found: list[WeightsFrame] = []

    def poll() -> None:
        if (frame := client.poll()) is not None:
            found.append(frame)

    until(lambda: not client.pending, server, poll)
    return found[0] if found else None


def test_newer_weights_are_received_in_slices(server: Serving, client: WeightsClient) -> None:
    server.hold((1, 5), b"left", bytes(200_000))
    frame = pull(client, server, None)
    assert frame is not None
    assert frame.version == client.held == (1, 5)
    assert [bytes(part) for part in frame.slices] == [b"left", bytes(200_000)]
    assert all(part.readonly for part in frame.slices)


def test_a_second_request_waits_for_the_first(server: Serving, client: WeightsClient) -> None:
    server.hold((1, 5), b"w")
    client.request(None)
    assert client.pending
    client.request((9, 9))
    frame = pull(client, server, (9, 9))
    assert frame is not None  # the answer to the first request
    requests = [message.have for message in server.seen if isinstance(message, GetWeights)]
    assert requests == [None]


def test_damaged_weights_are_dropped_and_requested_again(server: Serving, client: WeightsClient) -> None:
    server.hold((1, 5), b"w")
    server.digests = ("0" * 64,)
    client.request(None)
    until(lambda: client.num_malformed == 1, server, client.poll)
    assert client.pending
    server.digests = (payload_digest(b"w"),) * 2  # one frame is missing
    until(lambda: client.num_malformed == 2, server, client.poll)
    server.digests = None
    frame = pull(client, server, None)
    assert frame is not None
    assert bytes(frame.slices[0]) == b"w"


@pytest.mark.parametrize("sent", [(1, 4), (1, 5), (0, 9)])
def test_weights_that_are_not_newer_are_rejected(server: Serving, client: WeightsClient, sent: Version) -> None:
    client.request((1, 5))
    server.answers = False
    until(lambda: bool(server.seen), server, client.poll)
    asked = server.seen[-1]
    assert isinstance(asked, GetWeights)
    back = Weights(id=asked.id, lineage=sent[0], updates=sent[1], digests=(payload_digest(b"old"),))
    assert server.router.send(Peer(client.routing_id.encode()), [*encode(back), b"old"])
    found: list[WeightsFrame | None] = []
    until(lambda: client.num_malformed == 1, server, lambda: found.append(client.poll()))
    assert client.pending
    assert not any(found)


def test_rest_seconds_lasts_until_the_next_request_is_due(server: Serving, context: Context) -> None:
    now = [100.0]
    with context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=1)) as router:
        nowhere = router.endpoint
    client = WeightsClient(context, nowhere, run_id=RUN, contract=CONTRACT, clock=lambda: now[0])
    client.request(None)
    assert client.rest_seconds == pytest.approx(PAUSE_SECONDS)
    client.close()
    client = WeightsClient(context, server.endpoint, run_id=RUN, contract=CONTRACT, clock=lambda: now[0])

    def ask() -> None:
        now[0] += client.rest_seconds
        client.request((1, 5))

    server.hold((1, 5), b"w")
    until(lambda: bool(server.seen), server, ask)
    assert client.rest_seconds > 0.1  # an answer wakes the loop
    until(lambda: not client.pending, server, client.poll)
    assert client.held == (1, 5)
    assert client.rest_seconds == pytest.approx(PAUSE_SECONDS)  # nothing newer: the next request is not due before this pause
    now[0] += client.rest_seconds
    assert client.rest_seconds == 0.0
    server.hold((1, 6), b"w")
    assert pull(client, server, (1, 5)) is not None
    assert client.rest_seconds == 0.0  # newer weights may have arrived meanwhile
    client.close()


def test_only_the_latest_weights_are_published(server: Serving, publisher: WeightsPublisher) -> None:
    publisher.publish(1, 0, 0, 1, b"first")
    until(lambda: publisher.confirmed, server, publisher.poll)
    server.answers = False
    for updates in range(1, 50):
        publisher.publish(1, updates, 0, 1, b"%d" % updates)
    until(lambda: len(server.seen) >= 2, server)
    server.hold((1, 1), b"1")
    server.answers = True
    until(lambda: publisher.confirmed, server, publisher.poll)
    assert server.published == [(1, 0), (1, 49)]  # version 1 was received but not taken; the 47 versions between were never sent
    assert len([message for message in server.seen if isinstance(message, PublishSlice)]) == 3


@pytest.mark.parametrize("held", [(3, 5), (4, 0), (3, 4)])  # the last case has other weights under the same version
def test_a_publisher_of_old_weights_is_told_the_newer_lineage(server: Serving, publisher: WeightsPublisher, held: Version) -> None:
    server.hold(held, b"newer")
    publisher.publish(3, 4, 0, 1, b"old")
    until(lambda: publisher.newer_lineage is not None, server, publisher.poll)
    assert publisher.newer_lineage == held[0]
    assert server.published == []
    num_seen = len(server.seen)
    publisher.publish(held[0], 100, 0, 1, b"the same lineage: not sent")
    publisher.publish(held[0] + 1, 4, 0, 1, b"a new lineage")
    until(lambda: publisher.confirmed, server, publisher.poll)
    assert server.published == [(held[0] + 1, 4)]
    assert len(server.seen) == num_seen + 1


def test_a_refused_publisher_is_told_the_reason(server: Serving, publisher: WeightsPublisher) -> None:
    server.refusal = "another contract"
    publisher.publish(1, 1, 0, 1, b"w")
    until(lambda: publisher.refused == "another contract", server, publisher.poll)
    server.refusal = None
    until(lambda: publisher.confirmed, server, publisher.poll)
    assert publisher.refused is None


def test_the_end_is_sent_until_acknowledged_and_nothing_after_it(server: Serving, publisher: WeightsPublisher) -> None:
    """R34 of docs/messaging.md."""
    publisher.publish(3, 5, 0, 1, b"w")
    until(lambda: publisher.confirmed, server, publisher.poll)
    server.answers = False
    server.seen.clear()
    publisher.publish(3, 6, 0, 1, b"the last")
    publisher.end(3)
    until(lambda: sum(isinstance(message, AgentEnded) for message in server.seen) == 2, server, publisher.poll)
    assert not publisher.end_is_noted
    server.answers = True
    until(lambda: publisher.end_is_noted, server, publisher.poll)
    assert {message.lineage for message in server.seen if isinstance(message, AgentEnded)} == {3}
    num_seen = len(server.seen)
    for _ in range(20):
        publisher.poll()
        server.pump()
    assert len(server.seen) == num_seen
    assert not any(isinstance(message, PublishHeartbeat) for message in server.seen)
