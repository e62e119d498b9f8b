from __future__ import annotations

import pytest
from herd_paramserver.relay import RING_SECONDS, UNDER_WAY_SECONDS, RelayTable, RingError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from herd.transport import Peer

HOLDERS = st.sampled_from("abcde")
PEERS = st.sampled_from([Peer(b"first"), Peer(b"second")])


class RelayMachine(RuleBasedStateMachine):
    """Compared with a model that searches a list of (relay id, holder, peer, request id, time), oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RelayTable(max_under_way=3)
        self.model: list[tuple[int, str, Peer, int | None, float]] = []
        self.used: set[int] = set()
        self.now = 100.0

    @rule(holder=HOLDERS, peer=PEERS, request_id=st.none() | st.integers(0, 9))
    def pass_on(self, holder: str, peer: Peer, request_id: int | None) -> None:
        self.model = [entry for entry in self.model if self.now - entry[4] < UNDER_WAY_SECONDS]
        if any(entry[1] == holder and entry[2] != peer and self.now - entry[4] < RING_SECONDS for entry in self.model):
            with pytest.raises(RingError):
                self.table.pass_on(holder, peer, now=self.now, request_id=request_id)
            return
        relay_id = self.table.pass_on(holder, peer, now=self.now, request_id=request_id)
        assert relay_id not in self.used  # ids are unique, so a late answer cannot be taken for another one
        self.used.add(relay_id)
        others = [entry for entry in self.model if entry[1] != holder]
        self.model = [*others[-2:], (relay_id, holder, peer, request_id, self.now)]

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        relay_id = data.draw(st.sampled_from([*sorted(self.used), 10**6]))
        found = next((entry for entry in self.model if entry[0] == relay_id), None)
        expected = None if found is None or found[3] is None else (found[2], found[3])
        assert self.table.answered(relay_id) == expected
        self.model = [entry for entry in self.model if entry[0] != relay_id]

    @rule(seconds=st.sampled_from([0.1, 0.3, 10.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.table.expire(self.now)
        self.model = [entry for entry in self.model if self.now - entry[4] < UNDER_WAY_SECONDS]

    @invariant()
    def nothing_more_is_kept(self) -> None:
        assert len(self.table) == len(self.model) == len(self.table._holders)


RelayMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestRelayMachine = RelayMachine.TestCase


def test_answers_return_to_their_peer_with_its_request_id() -> None:
    table = RelayTable()
    first = table.pass_on("a", Peer(b"one"), now=0.0, request_id=7)
    second = table.pass_on("b", Peer(b"two"), now=0.0, request_id=7)
    assert table.answered(second) == (Peer(b"two"), 7)
    assert table.answered(first) == (Peer(b"one"), 7)
    assert table.answered(first) is None


def test_a_holders_newer_request_replaces_the_older() -> None:
    table = RelayTable()
    older = table.pass_on("a", Peer(b"one"), now=0.0, request_id=1)
    newer = table.pass_on("a", Peer(b"one"), now=1.0, request_id=2)
    assert table.answered(older) is None
    assert table.answered(newer) == (Peer(b"one"), 2)


def test_a_holder_on_a_new_connection_is_not_taken_for_a_ring() -> None:
    table = RelayTable()
    table.pass_on("a", Peer(b"one"), now=0.0, request_id=1)
    assert table.answered(table.pass_on("a", Peer(b"other"), now=0.5, request_id=2)) == (Peer(b"other"), 2)


def test_the_relay_table_is_bounded_and_evicts_the_oldest() -> None:
    table = RelayTable(max_under_way=2)
    ids = [table.pass_on(holder, Peer(b"peer"), now=0.0, request_id=1) for holder in "abc"]
    assert [table.answered(relay_id) for relay_id in ids] == [None, (Peer(b"peer"), 1), (Peer(b"peer"), 1)]
