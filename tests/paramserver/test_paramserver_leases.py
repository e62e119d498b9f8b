"""R35 to R38 of docs/messaging.md: which place each actor is given."""

from __future__ import annotations

from collections import Counter

import pytest
from herd_paramserver.leases import SILENCE_SECONDS, Liveness, NoIndexFreeError, PlaceLeases
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from herd.components.suites.api import dealt_task_ids

HOLDERS = st.sampled_from("abcdefgh")
AGENTS = st.integers(0, 2)
START, LEASE_SECONDS, MAX_LEASES = 25.0, 9.0, 7
WANTED = st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 2, MAX_LEASES - 1, MAX_LEASES]))


class LeaseMachine(RuleBasedStateMachine):
    """Three agents. Holders ask at any time, and learners publish, end, fall silent and come back. A model records who asked when."""

    def __init__(self) -> None:
        super().__init__()
        self.liveness = Liveness(3, now=START)
        self.leases = PlaceLeases(self.liveness, now=START, lease_seconds=LEASE_SECONDS, max_leases=MAX_LEASES)
        self.model: dict[str, tuple[tuple[int, int], float]] = {}
        self.num_moved = 0
        self.lineages = [0, 0, 0]
        self.now = START

    def _forget_expired(self) -> None:
        self.model = {holder: lease for holder, lease in self.model.items() if lease[1] > self.now}

    @rule(holder=HOLDERS, wanted=st.none() | WANTED)
    def lease(self, holder: str, wanted: tuple[int, int] | None) -> None:
        self._forget_expired()
        if holder not in self.model and len(self.model) == MAX_LEASES:
            with pytest.raises(NoIndexFreeError):
                self.leases.lease(holder, now=self.now, wanted=wanted)
            return
        agents = self.liveness.to_act_for(self.now)
        taken = {place for place, _ in self.model.values()}
        before = self.model.pop(holder, (None, 0.0))[0]
        place = self.leases.lease(holder, now=self.now, wanted=wanted)
        self.model[holder] = (place, self.now + LEASE_SECONDS)
        self.num_moved += place != (before or wanted or place)
        assert place.agent in agents
        if place == before:
            return
        assert place not in taken
        if before is None and wanted is not None and wanted[0] in agents and wanted[1] < MAX_LEASES and wanted not in taken:
            assert place == wanted
            return
        others = {other: place for other, (place, _) in self.model.items() if other != holder}
        numbers = {agent: sum(place[0] == agent for place in others.values()) for agent in agents}
        assert numbers[place.agent] == min(numbers.values())
        assert place.actor_index == next(
            index for index in range(9) if (place.agent, index) not in others.values() and (place.agent, index) != before
        )
        if before is not None and before[0] in agents:
            assert numbers[before[0]] > numbers[place.agent]  # the holder was moved to even out the numbers
            assert self.now >= START + LEASE_SECONDS

    @rule(holder=HOLDERS)
    def release(self, holder: str) -> None:
        self._forget_expired()
        self.leases.expire(self.now)
        assert self.leases.release(holder) == (self.model.pop(holder, None) is not None)

    @rule(seconds=st.sampled_from([0.5, LEASE_SECONDS / 2, LEASE_SECONDS, SILENCE_SECONDS]))
    def time_passes(self, seconds: float) -> None:
        """Leases that end are forgotten at the next event."""
        self.now += seconds

    @rule()
    def expire(self) -> None:
        before = len(self.model)
        self._forget_expired()
        assert self.leases.expire(self.now) == before - len(self.model)

    @rule(agent=AGENTS, restarts=st.booleans())
    def learner_publishes(self, agent: int, restarts: bool) -> None:
        self.lineages[agent] += restarts
        self.liveness.heard(agent, self.lineages[agent], self.now)

    @rule(agent=AGENTS)
    def learner_ends(self, agent: int) -> None:
        self.liveness.ended(agent, self.lineages[agent], self.now)

    @rule()
    def everybody_renews(self) -> None:
        """Quiescence: every living holder renews several times, and nothing else happens."""
        if all(expires <= self.now for _, expires in self.model.values()):
            return
        self._forget_expired()
        agents = self.liveness.to_act_for(self.now)
        for holder in [*self.model] * 4:
            place = self.leases.lease(holder, now=self.now)
            self.num_moved += place != self.model[holder][0]
            self.model[holder] = (place, self.now + LEASE_SECONDS)
        numbers = [self.leases.num_holders(agent) for agent in agents]
        assert sum(numbers) == len(self.model)
        if self.now >= START + LEASE_SECONDS:
            assert max(numbers) - min(numbers) <= 1

    @invariant()
    def no_place_is_shared(self) -> None:
        held = self.leases.holders()
        assert held == {holder: place for holder, (place, _) in self.model.items()}
        assert len(set(held.values())) == len(held) == len(self.leases)
        assert self.leases.num_moved == self.num_moved


LeaseMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLeaseMachine = LeaseMachine.TestCase


def make(num_agents: int = 1) -> tuple[PlaceLeases, Liveness]:
    liveness = Liveness(num_agents, now=0.0)
    return PlaceLeases(liveness, now=0.0, lease_seconds=10.0), liveness


def test_holders_are_not_moved_until_all_could_renew_after_a_restart() -> None:
    leases, _ = make(2)
    first = {f"first {index}": (0, index) for index in range(4)}
    for holder, place in first.items():
        assert leases.lease(holder, now=1.0, wanted=place) == place
    for holder, place in first.items():
        assert leases.lease(holder, now=9.0, wanted=place) == place  # the holders of agent 1 have not been heard yet
    for index in range(4):
        assert leases.lease(f"second {index}", now=9.5, wanted=(1, index)) == (1, index)
    assert leases.lease("first 3", now=10.0) == (0, 3)


def test_actors_of_an_ended_agent_move_until_a_new_lineage_begins() -> None:
    leases, liveness = make(3)
    holders = [f"actor {number}" for number in range(12)]

    def renew(now: float) -> list[int]:
        for agent in (0, 2):
            liveness.heard(agent, 1, now)
        for holder in holders:
            leases.lease(holder, now=now)
        assert all(
            {index for agent, index in leases.holders().values() if agent == number} == set(range(leases.num_holders(number)))
            for number in range(3)
        )
        return [leases.num_holders(agent) for agent in range(3)]

    assert renew(1.0) == [4, 4, 4]
    liveness.ended(1, 7, 2.0)
    assert renew(4.0) == [6, 0, 6]
    liveness.heard(1, 7, 5.0)  # a late heartbeat
    assert renew(7.0) == [6, 0, 6]
    liveness.heard(1, 8, 9.5)  # the run was resumed
    assert renew(10.0) == [4, 4, 4]
    assert leases.num_moved == 4 + 4


def test_actors_leave_a_silent_learner_unless_all_are_silent() -> None:
    leases, liveness = make(2)
    assert leases.lease("actor", now=SILENCE_SECONDS - 1.0) == (0, 0)
    assert leases.lease("actor", now=SILENCE_SECONDS + 1.0) == (0, 0)  # no other learner is better
    liveness.heard(1, 1, SILENCE_SECONDS + 2.0)
    assert leases.lease("actor", now=SILENCE_SECONDS + 3.0) == (1, 0)
    liveness.ended(1, 1, SILENCE_SECONDS + 4.0)
    assert leases.lease("actor", now=SILENCE_SECONDS + 5.0) == (0, 0)  # a silent learner may come back, but one that ended does not
    liveness.ended(0, 1, SILENCE_SECONDS + 6.0)
    assert leases.lease("actor", now=SILENCE_SECONDS + 7.0) == (0, 0)


def test_the_end_of_an_old_lineage_does_not_end_its_successor() -> None:
    liveness = Liveness(2, now=0.0)
    liveness.heard(0, 5, 1.0)
    liveness.ended(0, 4, 2.0)
    assert liveness.to_act_for(3.0) == [0, 1]
    liveness.ended(0, 5, 3.0)
    assert liveness.to_act_for(4.0) == [1]


@given(
    events=st.lists(st.tuples(st.sampled_from("abcdefghijkl"), st.sampled_from(["asks", "leaves", "falls silent"])), max_size=60),
    num_environments=st.integers(1, 9),
    num_tasks=st.integers(1, 13),
)
@settings(deadline=None)
def test_indices_become_dense_after_holders_leave(events: list[tuple[str, str]], num_environments: int, num_tasks: int) -> None:
    """R38a: after each living holder has asked once more, their indices are 0..n-1, and none has moved twice."""
    leases = PlaceLeases(Liveness(1, now=0.0), now=-LEASE_SECONDS, lease_seconds=LEASE_SECONDS, stays_dense=True)
    there: set[str] = set()
    now = 0.0
    for holder, event in events:
        if event == "asks":
            leases.lease(holder, now=now)
            there.add(holder)
        elif event == "leaves":
            leases.release(holder)
            there.discard(holder)
        elif there:  # the others ask every third of a lease; when the lease ends, the silent holder's place is free
            there.discard(holder)
            for _ in range(4):
                now += LEASE_SECONDS / 3
                for other in sorted(there):
                    leases.lease(other, now=now)
    moved = leases.num_moved
    for holder in sorted(there):
        leases.lease(holder, now=now)
    assert leases.num_moved - moved <= len(there)
    indices = sorted(leases.lease(holder, now=now).actor_index for holder in there)
    assert indices == list(range(len(there)))
    played = Counter(
        int(task)
        for index in indices
        for task in dealt_task_ids(num_environments=num_environments, first_slot=index * num_environments, num_tasks=num_tasks)
    )
    numbers = [played[task] for task in range(num_tasks)]
    assert sum(numbers) == len(there) * num_environments
    assert max(numbers) - min(numbers) <= 1


def test_holders_fill_gaps_only_if_dense_and_after_the_restart_period() -> None:
    for stays_dense, now, expected in ((False, 20.0, 1), (True, 5.0, 1), (True, 20.0, 0)):
        leases = PlaceLeases(Liveness(1, now=0.0), now=0.0, lease_seconds=10.0, stays_dense=stays_dense)
        assert [leases.lease(holder, now=now - 1.0).actor_index for holder in "ab"] == [0, 1]
        leases.release("a")
        assert leases.lease("b", now=now).actor_index == expected
