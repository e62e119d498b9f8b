"""When a batch starts, which requests it contains, which environments are known, and where their states are stored."""

from __future__ import annotations

from typing import Any

from herd_inference.sessions import Batches, Places, Request, Session, Sessions
from hypothesis import given
from hypothesis import strategies as st

from herd.transport import Peer

NO_ROWS: Any = None


def asking(batches: Batches, number: int, count: int, at: float, agent: int = 0) -> Request:
    session = Session(Peer(b"%d" % number), agent, (0, count), last_id=1)
    session.waiting = Request(session, 1, NO_ROWS, has_state=True, wants_state=True, arrived_at=at)
    batches.add(session.waiting)
    return session.waiting


def test_a_full_batch_starts_at_once_and_others_at_the_deadline() -> None:
    batches = Batches(1, batch_size=8, deadline_seconds=0.5)
    batches.may_act(0)
    first = asking(batches, 1, 4, at=10.0)
    assert batches.due_at() == 10.5
    assert batches.next(10.49) == []
    second = asking(batches, 2, 4, at=10.2)
    assert batches.due_at() == 10.0
    assert batches.next(10.2) == [first, second]
    assert batches.due_at() == float("inf")
    third = asking(batches, 3, 7, at=11.0)
    assert batches.next(11.499) == []
    assert batches.next(11.5) == [third]
    assert len(batches) == 0
    at_once = Batches(1, batch_size=8, deadline_seconds=0.0)
    at_once.may_act(0)
    request = asking(at_once, 1, 1, at=3.0)
    assert at_once.next(3.0) == [request]


def test_a_batch_holds_the_oldest_requests_that_fit() -> None:
    batches = Batches(1, batch_size=8, deadline_seconds=9.0)
    batches.may_act(0)
    requests = [asking(batches, number, count, at=float(number)) for number, count in enumerate((5, 3, 1, 20, 2))]
    assert batches.next(5.0) == requests[:2]  # the third would exceed the batch size
    assert batches.next(5.0) == requests[2:3]
    assert batches.next(5.0) == requests[3:4]  # larger than a batch: it is acted on alone
    assert batches.next(5.0) == []
    assert batches.next(13.0) == requests[4:]


def test_a_batch_is_of_one_agent_and_waits_for_its_weights() -> None:
    batches = Batches(3, batch_size=4, deadline_seconds=1.0)
    batches.may_act(1)
    without = asking(batches, 1, 4, at=1.0, agent=0)
    with_weights = [asking(batches, 2, 2, at=2.0, agent=1), asking(batches, 3, 2, at=2.5, agent=1)]
    assert batches.next(50.0) == with_weights
    assert batches.next(50.0) == []
    batches.may_act(2)
    older, newer = asking(batches, 4, 1, at=60.0, agent=2), asking(batches, 5, 1, at=61.0, agent=1)
    assert batches.next(70.0) == [older]
    assert batches.next(70.0) == [newer]
    batches.may_act(0)
    assert batches.next(70.0) == [without]


def test_discarded_and_replaced_requests_leave_the_queue() -> None:
    batches = Batches(1, batch_size=6, deadline_seconds=1.0)
    batches.may_act(0)
    gone, wanted = asking(batches, 1, 3, at=1.0), asking(batches, 2, 2, at=1.5)
    batches.discard(gone.session)
    assert (len(batches), batches.due_at()) == (1, 2.5)
    instead = Request(wanted.session, 2, NO_ROWS, has_state=True, wants_state=True, arrived_at=1.7)
    batches.add(instead)
    assert (len(batches), batches.due_at()) == (1, 2.7)
    asking(batches, 3, 3, at=1.8)
    assert batches.due_at() == 2.7  # five environments wait; the two that were replaced do not count
    assert batches.next(3.0)[0] is instead
    assert (len(batches), batches.due_at()) == (0, float("inf"))


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 7), st.integers(0, 9)), max_size=60))
def test_places_never_overlap_and_are_merged_when_freed(steps: list[tuple[bool, int, int]]) -> None:
    places, capacity = Places(20), 20
    taken: list[tuple[int, int]] = []
    for takes, count, which in steps:
        if takes:
            span = places.take(count)
            used = {place for first, end in taken for place in range(first, end)}
            room = [start for start in range(capacity - count + 1) if not used & set(range(start, start + count))]
            assert span == ((room[0], room[0] + count) if room else None)  # first fit, found by checking every place
            if span is not None:
                taken.append(span)
        elif taken:
            places.give_back(taken.pop(which % len(taken)))
    for span in taken:
        places.give_back(span)
    assert places.take(capacity) == (0, capacity)


def test_the_least_recently_heard_sessions_are_evicted() -> None:
    ended: list[Session] = []
    sessions = Sessions(10, ended.append)
    one, two, three = (sessions.open(Peer(name), 0, 3) for name in (b"one", b"two", b"three"))
    two.waiting = Request(two, 1, NO_ROWS, has_state=True, wants_state=True, arrived_at=0.0)
    request = two.waiting
    assert sessions.heard(Peer(b"one")) is one
    four = sessions.open(Peer(b"four"), 0, 4)  # sessions two and three have been silent the longest; their adjacent places are joined
    assert sessions.heard(Peer(b"two")) is sessions.heard(Peer(b"three")) is None
    assert (four.places, one.places, sessions.num_evicted, sessions.num_environments) == ((3, 7), (0, 3), 6, 7)
    assert not request.is_wanted
    assert ended == [two, three]
    assert three.num_environments == 3


def test_a_client_that_changes_its_size_keeps_one_session() -> None:
    ended: list[Session] = []
    sessions = Sessions(10, ended.append)
    sessions.open(Peer(b"one"), 0, 6)
    again = sessions.open(Peer(b"one"), 0, 7)
    assert (sessions.num_environments, sessions.num_evicted, again.places) == (7, 0, (0, 7))
