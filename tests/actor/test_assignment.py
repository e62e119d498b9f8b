"""R39 of docs/messaging.md: how long an actor keeps a place, and where it goes next."""

from __future__ import annotations

from typing import cast

import herd_actor.assignment
import pytest
from herd_actor.assignment import Assignments

from herd.config.run import RunSettings
from herd.protocols.weights.messages import Place
from herd.service.identity import Identity
from herd.service.signals import StopRequest
from herd.transport.context import Context


class Stop:
    def __init__(self) -> None:
        self.is_asked = False

    def __bool__(self) -> bool:
        return self.is_asked


class Lease:
    """Stands in for the lease from the parameter server."""

    def __init__(self) -> None:
        self.place: Place | None = None
        self.next: Place | None = Place(0, 3)
        self.refused = None
        self.is_closed = False

    def acquire(self, _keep_waiting: object) -> Place | None:
        self.poll()
        return self.place

    def poll(self) -> None:
        self.place = self.next

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def lease(monkeypatch: pytest.MonkeyPatch) -> Lease:
    lease = Lease()
    monkeypatch.setattr(herd_actor.assignment, "IndexLease", lambda *_, **__: lease)
    return lease


def assignments(stop: Stop, *, agents: int = 1, agent: int | None = None, index: int | None = None) -> Assignments:
    identity = Identity(agent=agent, index=index, addresses={"paramserver": ("tcp://127.0.0.1:1",)})
    return Assignments(cast("Context", None), RunSettings(agents=agents), identity, cast("StopRequest", stop))


def test_a_renewal_with_another_place_starts_the_next_stint(lease: Lease) -> None:
    made = assignments(Stop(), agents=2)
    places = []
    for assignment, lease.next in zip(made, [Place(1, 0), Place(1, 2)], strict=False):
        places.append(assignment.place)
        assert assignment
    assert places == [(0, 3), (1, 0)]
    made.close()
    assert lease.is_closed


def test_a_signal_ends_the_last_stint(lease: Lease) -> None:
    stop = Stop()
    seen = 0
    for assignment in assignments(stop):
        seen += 1
        assert not assignment
        stop.is_asked = True
        assert assignment
    assert seen == 1
    assert lease.place == (0, 3)


def test_a_stop_request_while_waiting_for_a_place_starts_no_stint(lease: Lease) -> None:
    lease.next = None
    assert list(assignments(Stop())) == []


@pytest.mark.parametrize(("agents", "agent", "place"), [(1, None, (0, 5)), (3, 2, (2, 5))])
def test_a_fixed_place_needs_no_lease(lease: Lease, agents: int, agent: int | None, place: tuple[int, int]) -> None:
    stop = Stop()
    made = assignments(stop, agents=agents, agent=agent, index=5)
    assignment = next(iter(made))
    assert assignment.place == place
    assert not assignment
    stop.is_asked = True
    assert assignment
    made.close()
    assert lease.place is None
    assert not lease.is_closed


def test_with_several_agents_an_index_alone_still_needs_a_lease(lease: Lease) -> None:
    assert next(iter(assignments(Stop(), agents=2, index=5))).place == (0, 3)
    assert lease.place == (0, 3)


@pytest.mark.parametrize("index", [None, 2])
def test_stints_end_with_the_run(lease: Lease, index: int | None) -> None:
    made = iter(assignments(Stop(), index=index))
    assignment = next(made)
    assert not assignment
    assignment.run_is_over = True
    assert assignment
    assert list(made) == []
