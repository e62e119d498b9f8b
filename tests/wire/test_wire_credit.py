from __future__ import annotations

from collections import Counter, deque
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from herd.protocols.unrolls.credit import CreditPool, Grant
from herd.transport import Peer

A, B, C = Peer(b"a"), Peer(b"b"), Peer(b"c")


def pool_of(capacity: int, *peers: Peer, max_unrolls: int = 4) -> CreditPool:
    pool = CreditPool(capacity, expires_seconds=60.0)
    for peer in peers:
        assert pool.on_hello(peer, max_unrolls, 0.0) == []
    return pool


def test_unused_credit_expires_in_favour_of_waiting_peers() -> None:
    pool = pool_of(8, A, max_unrolls=8)
    assert pool.on_credit_request(A, 8, 0.0) == [Grant(A, 8)]
    pool.expire(0.0)
    for second in range(1, 100):  # it is alive, asks, and sends little
        assert pool.on_credit_request(A, 8, float(second)) == []
        assert pool.expire(float(second)) == []
    assert pool.on_message_received(A, 1, 99.0)
    assert pool.on_consumed(1) == []
    pool.on_hello(B, 8, 99.5)
    assert pool.on_credit_request(B, 8, 99.5) == []
    assert pool.expire(100.0) == [Grant(B, 8)]
    assert not pool.knows(A)


@pytest.mark.parametrize("num_honest", [1, 2, 9])
def test_a_fast_peer_gets_no_more_than_its_turn(num_honest: int) -> None:
    """An actor that invents its unrolls plays in no time. Between its request and its grant, each of the others may send one message."""
    flat_out = Peer(b"flat out")
    honest = [Peer(b"%d" % number) for number in range(num_honest)]
    pool = pool_of(8, flat_out, *honest)
    random = Random(num_honest)
    sent: Counter[Peer] = Counter()
    waits_since: dict[Peer, int] = {}
    granted: deque[Grant] = deque()

    def ask(peer: Peer) -> None:
        waits_since[peer] = sent.total()
        granted.extend(pool.on_credit_request(peer, sent[peer] * 4 + 4, 0.0))

    for peer in (flat_out, *honest):
        ask(peer)
    for _ in range(2000):
        peer = granted.popleft().peer
        # A message granted before the request may still be in flight, in addition to one from each other peer.
        assert sent.total() - waits_since.pop(peer) <= num_honest + 1
        assert pool.on_message_received(peer, 4, 0.0)
        granted.extend(pool.on_consumed(4))
        sent[peer] += 1
        playing = [other for other in honest if other not in waits_since and all(other != grant.peer for grant in granted)]
        for other in (flat_out, *random.sample(playing, random.randint(0, len(playing)))):
            if other not in waits_since:
                ask(other)
        if not granted:
            for other in playing:
                ask(other)
    assert min(sent[peer] for peer in honest) > 0


def test_messages_larger_than_the_queue_and_consuming_what_is_not_held_are_errors() -> None:
    with pytest.raises(ValueError, match="of 5 unrolls do not fit into the learner's queue of 4"):
        pool_of(4, A, max_unrolls=5)
    with pytest.raises(ValueError, match="1 unrolls consumed, 0 held"):
        pool_of(4, A).on_consumed(1)


CAPACITY = 10
PEERS = st.sampled_from([A, B, C])


class PoolMachine(RuleBasedStateMachine):
    """Any sequence of events, compared with a simple model."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = CreditPool(CAPACITY, expires_seconds=5.0)
        self.now = 0.0
        self.told: dict[Peer, int] = {}  # cumulative grants announced in the current session
        self.sent: dict[Peer, int] = {}
        self.most: dict[Peer, int] = {}
        self.heard: dict[Peer, float] = {}
        self.held = 0
        self.queue: list[Peer] = []
        self.holds_since: dict[Peer, float] = {}

    def announce(self, grants: list[Grant]) -> None:
        for peer, granted in grants:
            assert granted > self.told[peer], "a grant that grants nothing"
            assert peer == self.queue.pop(0), "out of turn"
            self.told[peer] = granted

    def forget(self, peer: Peer) -> None:
        for table in (self.told, self.sent, self.most, self.heard, self.holds_since):
            table.pop(peer, None)
        self.queue = [waiting for waiting in self.queue if waiting != peer]

    @rule(peer=PEERS, max_unrolls=st.integers(1, CAPACITY))
    def hello(self, peer: Peer, max_unrolls: int) -> None:
        self.forget(peer)
        self.told[peer] = self.sent[peer] = 0
        self.most[peer] = max_unrolls
        self.heard[peer] = self.now
        self.announce(self.pool.on_hello(peer, max_unrolls, self.now))

    @rule(peer=PEERS, more=st.integers(0, CAPACITY))
    def request(self, peer: Peer, more: int) -> None:
        wanted = self.sent.get(peer, 0) + more
        if peer in self.told:
            self.heard[peer] = self.now
            if min(wanted, self.sent[peer] + self.most[peer]) > self.told[peer] and peer not in self.queue:
                self.queue.append(peer)
        self.announce(self.pool.on_credit_request(peer, wanted, self.now))

    @rule(peer=PEERS, num_unrolls=st.integers(1, CAPACITY))
    def message(self, peer: Peer, num_unrolls: int) -> None:
        allowed = peer in self.told and self.sent[peer] + num_unrolls <= self.told[peer]
        if peer in self.heard:
            self.heard[peer] = self.now
        assert self.pool.on_message_received(peer, num_unrolls, self.now) == allowed
        if allowed:
            self.sent[peer] += num_unrolls
            if self.sent[peer] == self.told[peer]:
                self.holds_since.pop(peer, None)
            self.held += num_unrolls

    @precondition(lambda self: self.held > 0)
    @rule(data=st.data())
    def consume(self, data: st.DataObject) -> None:
        num_unrolls = data.draw(st.integers(1, self.held))
        self.held -= num_unrolls
        self.announce(self.pool.on_consumed(num_unrolls))

    @rule(peer=PEERS)
    def goodbye(self, peer: Peer) -> None:
        self.forget(peer)
        self.announce(self.pool.on_goodbye(peer))

    @rule(seconds=st.sampled_from([0.0, 1.0, 4.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for peer in [peer for peer, heard in self.heard.items() if self.now - heard >= 5.0]:
            self.forget(peer)
        for peer in [peer for peer, since in self.holds_since.items() if self.now - since >= 5.0]:
            if self.queue:
                self.forget(peer)
        for peer, told in self.told.items():
            if told > self.sent[peer]:
                self.holds_since.setdefault(peer, self.now)
        self.announce(self.pool.expire(self.now))

    @invariant()
    def granted_and_held_fit_the_capacity(self) -> None:
        unused = sum(self.told[peer] - self.sent[peer] for peer in self.told)
        assert self.pool.granted_unused == unused
        assert self.pool.held == self.held
        assert unused + self.held <= CAPACITY

    @invariant()
    def nobody_has_more_than_one_message(self) -> None:
        for peer, told in self.told.items():
            assert self.pool.granted(peer) == told
            assert told - self.sent[peer] <= self.most[peer]

    @invariant()
    def who_is_first_waits_only_for_room(self) -> None:
        assert self.pool.num_waiting == len(self.queue)
        if self.queue:
            free = CAPACITY - self.pool.granted_unused - self.held
            known = self.pool._peers[self.queue[0]]
            assert known.wanted - known.granted > free


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
