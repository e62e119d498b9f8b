from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from herd_paramserver.leases import PlaceLeases
from herd_paramserver.liveness import Liveness
from herd_paramserver.requests import Reply, UnfitMessage
from herd_paramserver.root import RootHandler
from herd_paramserver.store import Version, WeightsStore

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
from herd.rpc.codec import OtherProtocol, decode_header
from herd.rpc.envelope import Message, Refused
from herd.transport import Peer

RUN, CONTRACT = "pong", "c" * 64


class Server:
    """A handler and its state."""

    def __init__(self, num_agents: int = 1) -> None:
        self.stores: tuple[WeightsStore[memoryview], ...] = tuple(WeightsStore() for _ in range(num_agents))
        self.store = self.stores[0]
        self.liveness = Liveness(num_agents, now=0.0)
        self.leases = PlaceLeases(self.liveness, now=0.0, lease_seconds=30.0, max_leases=2)
        self.handler = RootHandler(run_id=RUN, contract=CONTRACT, stores=self.stores, leases=self.leases, liveness=self.liveness)

    def ask(self, message: Message, *payloads: bytes, now: float = 0.0) -> Reply:
        reply = self.handler.answer(message, [memoryview(payload) for payload in payloads], peer=Peer(b"client"), now=now)
        assert isinstance(reply, Reply)
        return reply

    def publish(self, lineage: int, updates: int, *, index: int = 0, count: int = 1, payload: bytes = b"weights") -> Message:
        return self.ask(publish_slice(lineage, updates, index=index, count=count, payload=payload), payload).message

    def get(self, have: tuple[int, int] | None, *, run_id: str = RUN, contract: str = CONTRACT) -> Reply:
        return self.ask(GetWeights(request_id=7, run_id=run_id, agent=0, contract=contract, have=have))


def publish_slice(lineage: int, updates: int, *, index: int = 0, count: int = 1, payload: bytes = b"weights", run_id: str = RUN) -> Message:
    digest = hashlib.sha256(payload).hexdigest()
    return PublishSlice(
        run_id=run_id, agent=0, contract=CONTRACT, lineage=lineage, updates=updates, index=index, count=count, digest=digest
    )  # fmt: skip


def heartbeat(lineage: int, updates: int, *, index: int = 0, count: int = 1) -> Message:
    return PublishHeartbeat(run_id=RUN, agent=0, contract=CONTRACT, lineage=lineage, updates=updates, index=index, count=count)


def test_weights_already_held_are_answered_not_modified() -> None:
    server = Server()
    assert server.get(None).message == NotModified(request_id=7, held=None)
    server.publish(1, 4, index=1, count=2, payload=b"second")
    assert server.get(None).message == NotModified(request_id=7, held=None)
    server.publish(1, 4, index=0, count=2, payload=b"first")
    reply = server.get((1, 3))
    assert reply.message == Weights(
        request_id=7, lineage=1, updates=4, digests=(hashlib.sha256(b"first").hexdigest(), hashlib.sha256(b"second").hexdigest())
    )
    assert [bytes(payload) for payload in reply.payloads] == [b"first", b"second"]
    assert server.get((1, 4)).message == NotModified(request_id=7, held=(1, 4))
    assert server.get((1, 5)).message == NotModified(request_id=7, held=(1, 4))


def test_every_client_gets_the_same_buffer() -> None:
    server = Server()
    payload = memoryview(bytes(1000))
    message = publish_slice(1, 1, payload=bytes(1000))
    server.handler.answer(message, [payload], peer=Peer(b"client"), now=0.0)
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


def test_only_the_request_that_completes_a_version_announces_it() -> None:
    server = Server()
    first, second = (publish_slice(1, 1, index=index, count=2) for index in range(2))
    assert server.ask(first, b"weights").new_version is None
    assert server.ask(second, b"weights").new_version == Version(1, 1)
    assert server.ask(second, b"weights").new_version is None


def test_a_shard_is_told_that_its_version_is_stale() -> None:
    """Shards start a version only after all have confirmed the previous one, so a version that overtakes theirs comes from elsewhere."""
    server = Server()
    server.publish(1, 8, index=0, count=2)
    assert server.publish(1, 7, index=1, count=2) == StalePublish(lineage=1, updates=8)
    assert server.publish(0, 7, index=1, count=2) == StalePublish(lineage=1, updates=8)


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


def test_requests_of_another_run_are_refused_by_name() -> None:
    server = Server()
    server.publish(1, 1)
    reply = server.get(None, run_id="breakout").message
    assert isinstance(reply, Refused)
    assert reply.request_id == 7
    assert "belongs to run pong, not breakout" in reply.reason
    assert isinstance(server.ask(publish_slice(9, 9, run_id="breakout"), b"weights").message, Refused)
    assert isinstance(server.ask(LeaseIndex(request_id=1, run_id="breakout", holder="h", agent=None, index=None)).message, Refused)
    server.ask(LeaseIndex(request_id=1, run_id=RUN, holder="h", agent=None, index=None))
    server.handler.answer(ReleaseIndex(run_id="breakout", agent=0, holder="h"), [], peer=Peer(b"client"), now=0.0)
    assert len(server.leases) == 1
    assert server.store.newest == Version(1, 1)


def test_another_contract_is_refused_with_the_settings_to_compare() -> None:
    reply = Server().get(None, contract="d" * 64).message
    assert isinstance(reply, Refused)
    assert "cccccccccccc" in reply.reason
    assert "same env, network" in reply.reason


def test_each_agent_has_its_own_weights() -> None:
    """R30: equal versions of two agents are independent; an agent that goes back or opens a new lineage does not affect the other."""
    server = Server(num_agents=2)

    def publish(agent: int, lineage: int, updates: int, payload: bytes) -> Message:
        message = publish_slice(lineage, updates, payload=payload).model_copy(update={"agent": agent})
        return server.ask(message, payload).message

    def get(agent: int, have: tuple[int, int] | None) -> Reply:
        return server.ask(GetWeights(request_id=7, run_id=RUN, agent=agent, contract=CONTRACT, have=have))

    assert publish(0, 4, 9, b"first") == Published(lineage=4, updates=9, index=0)
    assert get(1, None).message == NotModified(request_id=7, held=None)
    assert publish(1, 1, 2, b"second") == Published(lineage=1, updates=2, index=0)
    assert [bytes(get(agent, None).payloads[0]) for agent in range(2)] == [b"first", b"second"]
    assert publish(1, 0, 9, b"older") == StalePublish(lineage=1, updates=2)
    assert get(1, (1, 2)).message == NotModified(request_id=7, held=(1, 2))
    assert publish(0, 5, 0, b"resumed") == Published(lineage=5, updates=0, index=0)
    assert get(1, (1, 2)).message == NotModified(request_id=7, held=(1, 2))


def test_requests_of_an_unknown_agent_are_refused() -> None:
    server = Server(num_agents=2)
    reply = server.ask(GetWeights(request_id=7, run_id=RUN, agent=2, contract=CONTRACT, have=None))
    assert isinstance(reply.message, Refused)
    assert reply.refusal == "agent"
    assert reply.message.request_id == 7
    assert "serves agents 0 to 1, not 2" in reply.message.reason
    digest = hashlib.sha256(b"weights").hexdigest()
    beyond = PublishSlice(run_id=RUN, agent=255, contract=CONTRACT, lineage=1, updates=1, index=0, count=1, digest=digest)
    assert isinstance(server.ask(beyond, b"weights").message, Refused)
    ended = AgentEnded(request_id=8, run_id=RUN, agent=2, contract=CONTRACT, lineage=1)
    assert isinstance(server.ask(ended).message, Refused)
    assert [store.newest for store in server.stores] == [None, None]
    assert server.liveness.to_act_for(0.0) == [0, 1]


def test_places_alternate_between_agents_and_skip_ended_ones() -> None:
    server = Server(num_agents=2)

    def lease(holder: str, now: float, place: tuple[int, int] | None = None) -> tuple[int, int]:
        agent, index = place or (None, None)
        answer = server.ask(LeaseIndex(request_id=3, run_id=RUN, holder=holder, agent=agent, index=index), now=now).message
        assert isinstance(answer, IndexLeased)
        return answer.agent, answer.index

    server.ask(heartbeat(1, 1), now=1.0)
    assert [lease(holder, 1.0) for holder in "ab"] == [(0, 0), (1, 0)]
    ended = AgentEnded(request_id=8, run_id=RUN, agent=0, contract=CONTRACT, lineage=1)
    for _ in range(2):  # it may be repeated until it is acknowledged
        assert server.ask(ended, now=2.0).message == AgentEndNoted(request_id=8)
    assert lease("a", 3.0, (0, 0)) == (1, 1)
    server.ask(publish_slice(2, 1), b"weights", now=4.0)
    assert lease("b", 29.0, (1, 0)) == (1, 0)  # nothing moves before the first leases have run out
    assert lease("a", 31.0, (1, 1)) == (0, 0)


def test_a_message_of_version_1_is_refused_with_instructions() -> None:
    server = Server()
    golden = Path(__file__).parents[1] / "wire" / "golden" / "v1"
    for name, request_id in {"get_weights": 5, "lease_index": 7, "publish_slice": None, "publish_heartbeat": None}.items():
        with pytest.raises(OtherProtocol) as caught:
            decode_header(bytes.fromhex((golden / f"{name}.hex").read_text().split("\n")[0]))
        reply = server.handler.other_protocol(caught.value)
        assert reply.refusal == "protocol"
        assert isinstance(reply.message, Refused)
        assert reply.message.request_id == request_id
        assert "run the same release of Herd" in reply.message.reason


def test_indices_are_leased_released_and_run_out() -> None:
    server = Server()

    def lease(holder: str, now: float = 0.0) -> Message:
        return server.ask(LeaseIndex(request_id=3, run_id=RUN, holder=holder, agent=None, index=None), now=now).message

    assert lease("a") == IndexLeased(request_id=3, agent=0, index=0, lease_seconds=30.0)
    assert lease("b") == IndexLeased(request_id=3, agent=0, index=1, lease_seconds=30.0)
    assert lease("a") == IndexLeased(request_id=3, agent=0, index=0, lease_seconds=30.0)
    refused = lease("c")
    assert isinstance(refused, Refused)
    assert "all 2 actor indices are leased" in refused.reason
    assert server.handler.answer(ReleaseIndex(run_id=RUN, agent=0, holder="a"), [], peer=Peer(b"client"), now=1.0) is None
    assert lease("c", now=1.0) == IndexLeased(request_id=3, agent=0, index=0, lease_seconds=30.0)
    assert lease("d", now=31.0) == IndexLeased(request_id=3, agent=0, index=0, lease_seconds=30.0)


@pytest.mark.parametrize(
    ("message", "payloads", "label"),
    [
        (Ack(sequence=1, granted_unrolls=1), [], "unexpected"),
        (publish_slice(1, 1), [], "array"),
        (publish_slice(1, 1), [b"weights", b"weights"], "array"),
        (publish_slice(1, 1), [b"damaged"], "digest"),
        (GetWeights(request_id=1, run_id=RUN, agent=0, contract=CONTRACT, have=None), [b"surplus"], "array"),
        (publish_slice(1, 1, index=2, count=2), [b"weights"], "array"),
    ],
)
def test_invalid_messages_change_nothing(message: Message, payloads: list[bytes], label: str) -> None:
    server = Server()
    with pytest.raises(UnfitMessage) as caught:
        server.handler.answer(message, [memoryview(payload) for payload in payloads], peer=Peer(b"client"), now=0.0)
    assert caught.value.label == label
    assert server.store.newest is None
    assert server.store.num_bytes == 0
