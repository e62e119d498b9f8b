from __future__ import annotations

import hashlib

import pytest
from herd_paramserver.requests import Answer
from herd_paramserver.store import Version

from herd.protocols.unrolls.messages import Ack
from herd.protocols.weights.messages import (
    AgentEnded,
    AgentEndNoted,
    GetWeights,
    IndexLeased,
    LeaseIndex,
    NotModified,
    Published,
    PublishHeartbeat,
    PublishSlice,
    ReleaseIndex,
    SliceWanted,
    StalePublish,
    Weights,
)
from herd.rpc.codec import MalformedMessage
from herd.rpc.envelope import Message, Refused
from herd.rpc.serving import Received
from tests.asking import CLIENT
from tests.paramserver.asking import CONTRACT, RUN, Root


class Server(Root):
    """A root, with requests of its clients."""

    def publish(self, lineage: int, updates: int, *, index: int = 0, count: int = 1, payload: bytes = b"weights") -> Message | None:
        return self.ask(publish_slice(lineage, updates, index=index, count=count, payload=payload), payload).message

    def get(self, have: tuple[int, int] | None, *, run_id: str = RUN, contract: str = CONTRACT) -> Answer:
        return self.ask(GetWeights(id=7, run=run_id, agent=0, contract=contract, have=have))


def publish_slice(lineage: int, updates: int, *, index: int = 0, count: int = 1, payload: bytes = b"weights", run_id: str = RUN) -> Message:
    digest = hashlib.sha256(payload).hexdigest()
    return PublishSlice(
        run=run_id, agent=0, contract=CONTRACT, lineage=lineage, updates=updates, index=index, count=count, digest=digest
    )  # fmt: skip


def heartbeat(lineage: int, updates: int, *, index: int = 0, count: int = 1) -> Message:
    return PublishHeartbeat(run=RUN, agent=0, contract=CONTRACT, lineage=lineage, updates=updates, index=index, count=count)


def test_weights_already_held_are_answered_not_modified() -> None:
    server = Server()
    assert server.get(None).message == NotModified(id=7, held=None)
    server.publish(1, 4, index=1, count=2, payload=b"second")
    assert server.get(None).message == NotModified(id=7, held=None)
    server.publish(1, 4, index=0, count=2, payload=b"first")
    reply = server.get((1, 3))
    assert reply.message == Weights(
        id=7, lineage=1, updates=4, digests=(hashlib.sha256(b"first").hexdigest(), hashlib.sha256(b"second").hexdigest())
    )
    assert [bytes(payload) for payload in reply.payloads] == [b"first", b"second"]
    assert server.get((1, 4)).message == NotModified(id=7, held=(1, 4))
    assert server.get((1, 5)).message == NotModified(id=7, held=(1, 4))


def test_every_client_gets_the_same_buffer() -> None:
    server = Server()
    payload = memoryview(bytes(1000))
    message = publish_slice(1, 1, payload=bytes(1000))
    server.handler.answer(Received(CLIENT, message, [payload]), 0.0)
    first, second = server.get(None).payloads[0], server.get((0, 5)).payloads[0]
    assert first is payload
    assert second is payload


def test_publishers_are_told_the_outcome_of_their_slice() -> None:
    server = Server()
    assert server.publish(2, 5) == Published(lineage=2, updates=5, index=0)
    assert server.publish(2, 5) == Published(lineage=2, updates=5, index=0)
    assert server.publish(2, 4) == StalePublish(lineage=2, updates=5)
    assert server.publish(1, 900) == StalePublish(lineage=2, updates=5)
    # The same version with other contents: the learner must open a new lineage, and the other contents are never served.
    assert server.publish(2, 5, payload=b"other") == StalePublish(lineage=2, updates=5)
    assert bytes(server.get(None).payloads[0]) == b"weights"
    # A shard whose version was overtaken by another shard's: all have confirmed the previous one, so that one comes from elsewhere.
    server.publish(2, 8, index=0, count=2)
    assert server.publish(2, 7, index=1, count=2) == StalePublish(lineage=2, updates=8)


def test_only_the_request_that_completes_a_version_announces_it() -> None:
    server = Server()
    first, second = (publish_slice(1, 1, index=index, count=2) for index in range(2))
    assert server.ask(first, b"weights").new_version is None
    assert server.ask(second, b"weights").new_version == Version(1, 1)
    assert server.ask(second, b"weights").new_version is None


def test_a_heartbeat_is_answered_with_the_state_of_its_slice() -> None:
    server = Server()
    assert server.ask(heartbeat(1, 8)).message == SliceWanted(lineage=1, updates=8, index=0)
    server.publish(1, 8)
    assert server.ask(heartbeat(1, 8)).message == Published(lineage=1, updates=8, index=0)
    server.publish(1, 9)
    assert server.ask(heartbeat(1, 8)).message == StalePublish(lineage=1, updates=9)
    server.publish(2, 0)
    assert server.ask(heartbeat(1, 9)).message == StalePublish(lineage=2, updates=0)
    assert server.ask(heartbeat(2, 1, index=1, count=3)).message == SliceWanted(lineage=2, updates=1, index=1)
    server.publish(2, 1, index=0, count=3)
    assert server.ask(heartbeat(2, 1, index=0, count=3)).message == Published(lineage=2, updates=1, index=0)
    assert server.ask(heartbeat(2, 1, index=1, count=3)).message == SliceWanted(lineage=2, updates=1, index=1)
    assert server.ask(heartbeat(2, 0)).message == Published(lineage=2, updates=0, index=0)


def test_each_agent_has_its_own_weights() -> None:
    """R30: equal versions of two agents are independent; an agent that goes back or opens a new lineage does not affect the other."""
    server = Server(num_agents=2)

    def publish(agent: int, lineage: int, updates: int, payload: bytes) -> Message | None:
        message = publish_slice(lineage, updates, payload=payload).model_copy(update={"agent": agent})
        return server.ask(message, payload).message

    def get(agent: int, have: tuple[int, int] | None) -> Answer:
        return server.ask(GetWeights(id=7, run=RUN, agent=agent, contract=CONTRACT, have=have))

    assert publish(0, 4, 9, b"first") == Published(lineage=4, updates=9, index=0)
    assert get(1, None).message == NotModified(id=7, held=None)
    assert publish(1, 1, 2, b"second") == Published(lineage=1, updates=2, index=0)
    assert [bytes(get(agent, None).payloads[0]) for agent in range(2)] == [b"first", b"second"]
    assert publish(1, 0, 9, b"older") == StalePublish(lineage=1, updates=2)
    assert get(1, (1, 2)).message == NotModified(id=7, held=(1, 2))
    assert publish(0, 5, 0, b"resumed") == Published(lineage=5, updates=0, index=0)
    assert get(1, (1, 2)).message == NotModified(id=7, held=(1, 2))


def test_places_alternate_between_agents_and_skip_ended_ones() -> None:
    server = Server(num_agents=2)

    def lease(holder: str, now: float, place: tuple[int, int] | None = None) -> tuple[int, int]:
        answer = server.ask(LeaseIndex(id=3, run=RUN, client=holder, place=place), now=now).message
        assert isinstance(answer, IndexLeased)
        return answer.place

    server.ask(heartbeat(1, 1), now=1.0)
    assert [lease(holder, 1.0) for holder in "ab"] == [(0, 0), (1, 0)]
    ended = AgentEnded(id=8, run=RUN, agent=0, contract=CONTRACT, lineage=1)
    for _ in range(2):  # it may be repeated until it is acknowledged
        assert server.ask(ended, now=2.0).message == AgentEndNoted(id=8)
    assert lease("a", 3.0, (0, 0)) == (1, 1)
    server.ask(publish_slice(2, 1), b"weights", now=4.0)
    assert lease("b", 29.0, (1, 0)) == (1, 0)  # nothing moves before the first leases have run out
    assert lease("a", 31.0, (1, 1)) == (0, 0)


def test_indices_are_leased_released_and_run_out() -> None:
    server = Server()

    def lease(holder: str, now: float = 0.0) -> Message | None:
        return server.ask(LeaseIndex(id=3, run=RUN, client=holder, place=None), now=now).message

    assert lease("a") == IndexLeased(id=3, place=(0, 0), lease_seconds=30.0)
    assert lease("b") == IndexLeased(id=3, place=(0, 1), lease_seconds=30.0)
    assert lease("a") == IndexLeased(id=3, place=(0, 0), lease_seconds=30.0)
    for holder in "cdefg":  # nothing is kept of those who are refused
        refused = lease(holder)
        assert isinstance(refused, Refused)
        assert "all 2 actor indices are leased" in refused.reason
        assert len(server.leases) == 2
    assert server.ask(ReleaseIndex(run=RUN, client="a"), now=1.0).message is None
    assert lease("c", now=1.0) == IndexLeased(id=3, place=(0, 0), lease_seconds=30.0)
    assert lease("d", now=31.0) == IndexLeased(id=3, place=(0, 0), lease_seconds=30.0)


@pytest.mark.parametrize(
    ("message", "payloads", "label"),
    [
        (Ack(sequence=1, granted_unrolls=1), [], "unexpected"),
        (publish_slice(1, 1), [], "array"),
        (publish_slice(1, 1), [b"weights", b"weights"], "array"),
        (publish_slice(1, 1), [b"damaged"], "digest"),
        (GetWeights(id=1, run=RUN, agent=0, contract=CONTRACT, have=None), [b"surplus"], "array"),
        (publish_slice(1, 1, index=2, count=2), [b"weights"], "array"),
    ],
)
def test_invalid_messages_change_nothing(message: Message, payloads: list[bytes], label: str) -> None:
    server = Server()
    with pytest.raises(MalformedMessage) as caught:
        server.ask(message, *payloads)
    assert caught.value.label == label
    assert server.store.newest is None
    assert server.store.num_bytes == 0
