from __future__ import annotations

import hashlib

import pytest
from herd_paramserver.leases import PlaceLeases
from herd_paramserver.liveness import Liveness
from herd_paramserver.relay import RelayTable
from herd_paramserver.replica import ReplicaHandler
from herd_paramserver.requests import Action, Reply, ToParent, UnfitMessage
from herd_paramserver.root import RootHandler
from herd_paramserver.store import Version, WeightsStore
from herd_paramserver.store import Weights as HeldWeights

from herd.protocols.unrolls.messages import Ack
from herd.protocols.weights.messages import (
    AgentEnded,
    GetWeights,
    IndexLeased,
    LeaseIndex,
    NotModified,
    PublishHeartbeat,
    PublishSlice,
    ReleaseIndex,
    Weights,
)
from herd.rpc.envelope import Message, Refused
from herd.transport import Peer

RUN, CONTRACT, PARENT = "pong", "c" * 64, "tcp://root:7200"


CLIENT = Peer(b"client")


class Replica:
    def __init__(self) -> None:
        self.store: WeightsStore[memoryview] = WeightsStore()
        self.relay = RelayTable()
        self.handler = ReplicaHandler(run_id=RUN, contract=CONTRACT, stores=(self.store,), relay=self.relay, upstream=PARENT)

    def ask(self, message: Message, *payloads: bytes, peer: Peer = CLIENT, now: float = 0.0) -> Action | None:
        return self.handler.answer(message, [memoryview(payload) for payload in payloads], peer=peer, now=now)


def lease(holder: str = "h", request_id: int = 7, index: int | None = None, run_id: str = RUN) -> LeaseIndex:
    return LeaseIndex(request_id=request_id, run_id=run_id, holder=holder, agent=None if index is None else 0, index=index)


def test_a_replica_answers_clients_like_the_root() -> None:
    """Clients get the same messages and the very buffers that came from the parent."""
    replica = Replica()
    payloads = (memoryview(b"first"), memoryview(b"second"))
    digests = tuple(hashlib.sha256(payload).hexdigest() for payload in payloads)
    root_store: WeightsStore[memoryview] = WeightsStore()
    liveness = Liveness(1, now=0.0)
    leases = PlaceLeases(liveness, now=0.0, lease_seconds=1.0)
    root = RootHandler(run_id=RUN, contract=CONTRACT, stores=(root_store,), leases=leases, liveness=liveness)

    def both(have: tuple[int, int] | None, *, run_id: str = RUN, contract: str = CONTRACT) -> Reply:
        request = GetWeights(request_id=3, run_id=run_id, agent=0, contract=contract, have=have)
        reply = replica.ask(request)
        assert reply == root.answer(request, [], peer=Peer(b"client"), now=0.0)
        assert isinstance(reply, Reply)
        return reply

    assert both(None).message == NotModified(request_id=3, held=None)
    for store in (replica.store, root_store):
        assert store.adopt(HeldWeights(Version(1, 4), digests, payloads))
    given = both((1, 3))
    assert given.message == Weights(request_id=3, lineage=1, updates=4, digests=digests)
    assert all(sent is held for sent, held in zip(given.payloads, payloads, strict=True))
    assert both((1, 4)).message == NotModified(request_id=3, held=(1, 4))
    assert both((2, 0)).message == NotModified(request_id=3, held=(1, 4))
    assert isinstance(both(None, run_id="breakout").message, Refused)
    assert isinstance(both(None, contract="d" * 64).message, Refused)


def test_a_publisher_is_refused_with_the_address_of_the_root() -> None:
    replica = Replica()
    digest = hashlib.sha256(b"weights").hexdigest()
    publication = PublishSlice(run_id=RUN, agent=0, contract=CONTRACT, lineage=1, updates=1, index=0, count=1, digest=digest)
    heartbeat = PublishHeartbeat(run_id=RUN, agent=0, contract=CONTRACT, lineage=1, updates=1, index=0, count=1)
    ended = AgentEnded(request_id=4, run_id=RUN, agent=0, contract=CONTRACT, lineage=1)
    for action in (replica.ask(publication, b"weights"), replica.ask(heartbeat), replica.ask(ended)):
        assert isinstance(action, Reply)
        assert isinstance(action.message, Refused)
        assert "the address of the root" in action.message.reason
        assert PARENT in action.message.reason
    assert replica.store.newest is None


def test_lease_requests_are_relayed_to_the_parent_and_answered() -> None:
    replica = Replica()
    passed = [replica.ask(lease("a", 7, 3), peer=Peer(b"one")), replica.ask(lease("b", 7), peer=Peer(b"two"))]
    assert all(isinstance(action, ToParent) for action in passed)
    asked = [action.message for action in passed if isinstance(action, ToParent)]
    assert [(message.holder, message.index, message.run_id) for message in asked if isinstance(message, LeaseIndex)] == [
        ("a", 3, RUN),
        ("b", None, RUN),
    ]
    ids = [message.request_id for message in asked if isinstance(message, LeaseIndex)]
    assert len(set(ids)) == 2
    back = replica.handler.answer_of_parent
    assert back(IndexLeased(request_id=ids[1], agent=0, index=5, lease_seconds=9.0)) == (
        Peer(b"two"),
        IndexLeased(request_id=7, agent=0, index=5, lease_seconds=9.0),
    )
    assert back(Refused(request_id=ids[0], reason="none free")) == (Peer(b"one"), Refused(request_id=7, reason="none free"))
    assert back(IndexLeased(request_id=ids[0], agent=0, index=5, lease_seconds=9.0)) is None  # this request was answered already
    assert back(Refused(reason="to nobody in particular")) is None
    assert back(Ack(sequence=1, granted_unrolls=1)) is None
    assert len(replica.relay) == 0


def test_a_release_is_relayed_unchanged() -> None:
    replica = Replica()
    release = ReleaseIndex(run_id=RUN, agent=0, holder="h")
    assert replica.ask(release) == ToParent(release)
    assert replica.ask(ReleaseIndex(run_id="breakout", agent=0, holder="h")) is None


def test_leases_of_another_run_are_refused_without_relaying() -> None:
    replica = Replica()
    action = replica.ask(lease(run_id="breakout"))
    assert isinstance(action, Reply)
    assert isinstance(action.message, Refused)
    assert action.message.request_id == 7
    assert len(replica.relay) == 0


def test_a_ring_of_replicas_is_detected_and_refused() -> None:
    """Three replicas, each the parent of the next: every message is passed on until it returns to the first one."""
    ring = [Replica() for _ in range(3)]
    message: Message = lease()
    peer = Peer(b"client")
    passed = 0
    while isinstance(action := ring[passed % 3].ask(message, peer=peer, now=0.01 * passed), ToParent):
        message, peer, passed = action.message, Peer(b"relay %d" % passed), passed + 1
        assert passed < 10
    assert passed == 3
    assert isinstance(action, Reply)
    refused = action.message
    for replica, asker in ((ring[2], b"relay 1"), (ring[1], b"relay 0"), (ring[0], b"client")):
        returned = replica.handler.answer_of_parent(refused)
        assert returned is not None
        assert returned[0] == Peer(asker)
        refused = returned[1]
    assert isinstance(refused, Refused)
    assert refused.request_id == 7
    assert "ring" in refused.reason

    release = ReleaseIndex(run_id=RUN, agent=0, holder="other")
    for number, asker in enumerate([b"client", b"relay 0", b"relay 1"]):
        assert ring[number].ask(release, peer=Peer(asker), now=1.0) == ToParent(release)
    assert ring[0].ask(release, peer=Peer(b"relay 2"), now=1.1) is None


def test_relayed_requests_expire() -> None:
    replica = Replica()
    replica.ask(lease(), now=0.0)
    replica.handler.tick(29.0)
    assert len(replica.relay) == 1
    replica.handler.tick(30.0)
    assert len(replica.relay) == 0


@pytest.mark.parametrize("message", [Ack(sequence=1, granted_unrolls=1), IndexLeased(request_id=1, agent=0, index=1, lease_seconds=1.0)])
def test_invalid_messages_are_dropped(message: Message) -> None:
    with pytest.raises(UnfitMessage):
        Replica().ask(message)
