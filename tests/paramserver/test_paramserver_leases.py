from __future__ import annotations

import pytest
from herd_paramserver.leases import IndexLeases, NoIndexFreeError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

HOLDERS = st.sampled_from(["a", "b", "c", "d", "e"])


class LeaseMachine(RuleBasedStateMachine):
    """Beside a model that keeps (index, expiry) by holder and searches from 0."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = IndexLeases(lease_seconds=10.0, max_leases=4)
        self.model: dict[str, tuple[int, float]] = {}
        self.now = 0.0

    def _alive(self) -> dict[str, tuple[int, float]]:
        return {holder: lease for holder, lease in self.model.items() if lease[1] > self.now}

    @rule(holder=HOLDERS, wanted=st.none() | st.integers(-1, 5))
    def lease(self, holder: str, wanted: int | None) -> None:
        self.model = self._alive()
        taken = {index for index, _ in self.model.values()}
        if holder in self.model:
            expected = self.model[holder][0]
        elif len(taken) == 4:
            with pytest.raises(NoIndexFreeError):
                self.leases.lease(holder, now=self.now, wanted=wanted)
            return
        elif wanted is not None and 0 <= wanted < 4 and wanted not in taken:
            expected = wanted
        else:
            expected = next(index for index in range(5) if index not in taken)
        assert self.leases.lease(holder, now=self.now, wanted=wanted) == expected
        self.model[holder] = (expected, self.now + 10.0)

    @rule(holder=HOLDERS)
    def release(self, holder: str) -> None:
        self.model = self._alive()
        self.leases.expire(self.now)
        assert self.leases.release(holder) == (self.model.pop(holder, None) is not None)

    @rule(seconds=st.sampled_from([0.5, 4.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        expired = self.leases.expire(self.now)
        assert expired == len(self.model) - len(self._alive())
        self.model = self._alive()

    @invariant()
    def no_index_is_shared(self) -> None:
        held = self.leases.holders()
        assert held == {holder: index for holder, (index, _) in self.model.items()}
        assert len(set(held.values())) == len(held) == len(self.leases)


LeaseMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestLeaseMachine = LeaseMachine.TestCase


def test_indices_are_dense_and_the_lowest_free_one_is_next() -> None:
    leases = IndexLeases(lease_seconds=10.0)
    assert [leases.lease(holder, now=0.0) for holder in "abcd"] == [0, 1, 2, 3]
    leases.release("c")
    leases.release("b")
    assert [leases.lease(holder, now=1.0) for holder in "efg"] == [1, 2, 4]


def test_a_holder_keeps_its_index_while_it_asks_and_loses_it_when_silent() -> None:
    leases = IndexLeases(lease_seconds=10.0)
    leases.lease("quiet", now=0.0)
    leases.lease("busy", now=0.0)
    assert leases.lease("busy", now=9.0) == 1
    assert leases.lease("new", now=10.0) == 0
    assert leases.lease("busy", now=18.9) == 1
    assert leases.lease("quiet", now=18.9) == 2


def test_a_restarted_server_grants_the_index_a_holder_acts_under() -> None:
    leases = IndexLeases(lease_seconds=10.0)
    assert leases.lease("survivor", now=0.0, wanted=5) == 5
    assert leases.lease("late", now=0.0, wanted=5) == 0


def test_a_renewed_lease_does_not_keep_others_alive() -> None:
    leases = IndexLeases(lease_seconds=10.0)
    leases.lease("busy", now=0.0)
    leases.lease("quiet", now=0.0)
    leases.lease("busy", now=5.0)
    assert leases.expire(12.0) == 1
    assert leases.holders() == {"busy": 0}
