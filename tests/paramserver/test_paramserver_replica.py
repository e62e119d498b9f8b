from __future__ import annotations

import hashlib

import pytest
from herd_paramserver.replica import Following, ReplicaHandler
from herd_paramserver.requests import Answer
from herd_paramserver.store import InvalidSliceError, Version, WeightsStore
from herd_paramserver.store import Weights as HeldWeights

from herd.protocols.unrolls.messages import Ack
from herd.protocols.weights.client import WeightsFrame
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
from herd.rpc.codec import MalformedMessage
from herd.rpc.envelope import Message, Refused
from herd.transport import Peer
from tests.asking import CLIENT
from tests.paramserver.asking import CONTRACT, RUN, Root, ask_handler

PARENT = "tcp://parent:7200"


class Replica:
    def __init__(self) -> None:
        self.store = WeightsStore()
        self.handler = ReplicaHandler(stores=(self.store,), upstream=PARENT, max_relayed=2)

    def ask(self, message: Message, *payloads: bytes, peer: Peer = CLIENT, now: float = 0.0) -> Answer:
        return ask_handler(self.handler, message, *payloads, peer=peer, now=now)


def lease(holder: str = "h", request_id: int = 7, index: int | None = None, run_id: str = RUN) -> LeaseIndex:
    return LeaseIndex(id=request_id, run=run_id, client=holder, place=None if index is None else (0, index))


def test_a_replica_answers_clients_like_the_root() -> None:
    """Clients get the same messages and the very buffers that came from the parent."""
    replica = Replica()
    payloads = (memoryview(b"first"), memoryview(b"second"))
    digests = tuple(hashlib.sha256(payload).hexdigest() for payload in payloads)
    root = Root()

    def both(have: tuple[int, int] | None, *, run_id: str = RUN, contract: str = CONTRACT) -> Answer:
        request = GetWeights(id=3, run=run_id, agent=0, contract=contract, have=have)
        reply = replica.ask(request)
        assert reply == root.ask(request)
        return reply

    assert both(None).message == NotModified(id=3, held=None)
    for store in (replica.store, root.store):
        assert store.adopt(HeldWeights(Version(1, 4), digests, payloads))
    given = both((1, 3))
    assert given.message == Weights(id=3, lineage=1, updates=4, digests=digests)
    assert all(sent is held for sent, held in zip(given.payloads, payloads, strict=True))
    assert both((1, 4)).message == NotModified(id=3, held=(1, 4))
    assert both((2, 0)).message == NotModified(id=3, held=(1, 4))
    assert isinstance(both(None, run_id="breakout").message, Refused)
    assert isinstance(both(None, contract="d" * 64).message, Refused)


def test_a_publisher_is_refused_with_the_address_of_the_root() -> None:
    replica = Replica()
    digest = hashlib.sha256(b"weights").hexdigest()
    publication = PublishSlice(run=RUN, agent=0, contract=CONTRACT, lineage=1, updates=1, index=0, count=1, digest=digest)
    heartbeat = PublishHeartbeat(run=RUN, agent=0, contract=CONTRACT, lineage=1, updates=1, index=0, count=1)
    ended = AgentEnded(id=4, run=RUN, agent=0, contract=CONTRACT, lineage=1)
    for action in (replica.ask(publication, b"weights"), replica.ask(heartbeat), replica.ask(ended)):
        assert isinstance(action.message, Refused)
        assert "the address of the root" in action.message.reason
        assert PARENT in action.message.reason
    assert replica.store.newest is None


def test_lease_requests_are_relayed_to_the_parent_and_answered() -> None:
    replica = Replica()
    passed = [replica.ask(lease("a", 7, 3), peer=Peer(b"one")), replica.ask(lease("b", 7), peer=Peer(b"two"))]
    asked = [action.to_parent for action in passed]
    assert [(message.client, message.place, message.run) for message in asked if isinstance(message, LeaseIndex)] == [
        ("a", (0, 3), RUN),
        ("b", None, RUN),
    ]
    ids = [message.id for message in asked if isinstance(message, LeaseIndex)]
    assert len(set(ids)) == 2
    back = replica.handler.answer_of_parent
    assert back(IndexLeased(id=ids[1], place=(0, 5), lease_seconds=9.0)) == (
        Peer(b"two"),
        IndexLeased(id=7, place=(0, 5), lease_seconds=9.0),
    )
    assert back(Refused(id=ids[0], reason="none free")) == (Peer(b"one"), Refused(id=7, reason="none free"))
    assert back(IndexLeased(id=ids[0], place=(0, 5), lease_seconds=9.0)) is None  # this request was answered already
    assert back(Refused(reason="to nobody in particular")) is None
    assert back(Ack(sequence=1, granted_unrolls=1)) is None


def test_of_too_many_relayed_requests_the_oldest_is_forgotten() -> None:
    replica = Replica()
    asked = [replica.ask(lease(holder, 1)).to_parent for holder in "abc"]
    answers = [replica.handler.answer_of_parent(Refused(id=message.id, reason="full")) for message in asked if message is not None]
    assert [answer is not None for answer in answers] == [False, True, True]


def test_a_release_is_relayed_unchanged() -> None:
    release = ReleaseIndex(run=RUN, client="h")
    assert Replica().ask(release) == Answer(to_parent=release)


def test_a_replica_has_no_replicas_and_so_no_ring() -> None:
    """Whether it is another replica or itself: nothing is served or relayed, and the reason says which address is right."""
    replica = Replica()
    for message in (lease(), ReleaseIndex(run=RUN, client="h"), GetWeights(id=3, run=RUN, agent=0, contract=CONTRACT, have=None)):
        answer = replica.ask(message, peer=Peer(b"replica/0123"))
        assert answer.to_parent is None
        assert isinstance(answer.message, Refused)
        assert f"itself a replica, of {PARENT}: give --paramserver the address of the root" in answer.message.reason


@pytest.mark.parametrize("message", [Ack(sequence=1, granted_unrolls=1), IndexLeased(id=1, place=(0, 1), lease_seconds=1.0)])
def test_invalid_messages_are_dropped(message: Message) -> None:
    with pytest.raises(MalformedMessage):
        Replica().ask(message)


# -- what a replica takes from its parent


def frame(lineage: int, updates: int, payload: bytes = b"weights") -> WeightsFrame:
    return WeightsFrame(lineage, updates, (memoryview(payload),), (hashlib.sha256(payload).hexdigest(),))


@pytest.fixture
def store() -> WeightsStore:
    return WeightsStore(max_version_bytes=100)


@pytest.fixture
def following(store: WeightsStore) -> Following:
    return Following(store, PARENT, now=100.0)


def test_only_newer_versions_are_taken_from_the_parent(following: Following, store: WeightsStore) -> None:
    assert following.take(frame(1, 500), now=101.0) == Version(1, 500)
    with pytest.raises(InvalidSliceError):
        following.take(frame(1, 501, bytes(101)), now=101.0)
    # A parent that restarted with an older or the same version replaces nothing.
    for lineage, updates in ((1, 400), (1, 500), (0, 900)):
        assert following.take(frame(lineage, updates, b"other"), now=102.0) is None
        assert following.version == Version(1, 500)
    assert store.visible is not None
    assert bytes(store.visible.payloads[0]) == b"weights"
    assert following.take(frame(2, 400), now=103.0) == Version(2, 400)  # a new lineage is accepted at once
    assert following.take(frame(2, 401), now=103.0) == Version(2, 401)


def test_readiness_says_what_is_served_and_what_the_parent_answers(following: Following) -> None:
    parent = "the parent tcp://parent:7200"
    assert following.readiness(103.0) == (False, f"no weights yet; {parent} has not answered for 3.0 s")
    assert following.silent_seconds(103.0) == 3.0  # since the start
    following.not_modified(None, now=104.0)
    assert following.readiness(104.5) == (False, f"no weights yet; {parent} answered 0.5 s ago and has no weights")
    following.refused("another run", now=106.0)
    assert following.readiness(106.0) == (False, f"no weights yet; {parent} refuses this replica: another run")
    assert following.silent_seconds(106.0) == 0.0
    following.take(frame(1, 5), now=107.0)
    following.not_modified(None, now=110.0)  # an empty parent does not clear the weights
    assert following.readiness(111.5) == (
        True,
        f"serves version (1, 5), received 4.5 s ago; {parent} answered 1.5 s ago and has no weights",
    )
    following.take(frame(3, 7), now=200.0)
    assert following.readiness(3800.0) == (True, f"serves version (3, 7), received 3600.0 s ago; {parent} answered 3600.0 s ago")
    following.refused("another contract", now=3801.0)
    assert following.readiness(3801.0)[0]
    assert "refuses this replica: another contract" in following.readiness(3801.0)[1]
    following.not_modified((3, 6), now=3802.0)
    assert "with version (3, 6), which is older and is ignored" in following.readiness(3802.0)[1]
