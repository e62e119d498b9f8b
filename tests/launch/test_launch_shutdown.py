from __future__ import annotations

from signal import SIGKILL, SIGTERM

import pytest

from herd.launch.shutdown import Grace, Phase, Shutdown

ALL = ("actor-0", "actor-1", "learner-0", "paramserver-0")
OTHERS = ("actor-0", "actor-1", "paramserver-0")


@pytest.fixture
def shutdown() -> Shutdown:
    return Shutdown(Grace(learner_seconds=60.0, others_seconds=10.0), ("learner-0",))


def test_the_learner_is_stopped_first_and_the_rest_after_it_ended(shutdown: Shutdown) -> None:
    state, signals = shutdown.request(100.0, ALL)
    assert signals == (("learner-0", SIGTERM),)
    state, signals = state.advance(130.0, ALL)
    assert signals == ()
    state, signals = state.advance(140.0, OTHERS)
    assert signals == tuple((name, SIGTERM) for name in OTHERS)
    state, signals = state.advance(141.0, ("actor-1",))
    assert signals == ()
    assert state.phase is Phase.OTHERS
    state, signals = state.advance(142.0, ())
    assert (state.phase, signals) == (Phase.DONE, ())


def test_a_learner_that_does_not_end_is_killed_and_the_rest_stopped(shutdown: Shutdown) -> None:
    state, _ = shutdown.request(100.0, ALL)
    state, signals = state.advance(159.9, ALL)
    assert signals == ()
    state, signals = state.advance(160.0, ALL)
    assert signals == (("learner-0", SIGKILL),)
    state, signals = state.advance(161.0, ALL)
    assert signals == ()
    state, signals = state.advance(162.0, OTHERS)
    assert signals == tuple((name, SIGTERM) for name in OTHERS)
    _, signals = state.advance(172.0, ("actor-0",))
    assert signals == (("actor-0", SIGKILL),)


def test_without_a_learner_all_children_are_stopped_at_once(shutdown: Shutdown) -> None:
    assert shutdown.advance(1e9, ALL) == (shutdown, ())  # nobody has asked yet
    state, signals = shutdown.request(0.0, OTHERS)
    assert (state.phase, signals) == (Phase.OTHERS, tuple((name, SIGTERM) for name in OTHERS))
    assert shutdown.request(0.0, ())[0].phase is Phase.DONE


def test_a_second_request_changes_nothing_and_hurry_kills(shutdown: Shutdown) -> None:
    state, _ = shutdown.request(0.0, ALL)
    assert state.request(1.0, ALL) == (state, ())
    state, signals = state.hurry(ALL)
    assert signals == tuple((name, SIGKILL) for name in ALL)
    assert state.advance(1000.0, ("actor-0",)) == (state, ())
    assert state.advance(1001.0, ())[0].phase is Phase.DONE
