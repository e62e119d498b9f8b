"""When a run counts as recovered; each test has one reason why it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.soak.observation import Observation, Reading
from benchmarks.soak.recovery import Recovery

BEFORE = {
    "learner-0": Reading(1, {0: (1, 10)}, 10.0),
    "paramserver-0": Reading(2, {0: (1, 10)}, 0.0),
    "actor-0": Reading(3, {0: (1, 9)}, 320.0),
    "actor-1": Reading(4, {0: (1, 10)}, 320.0),
}
AFTER = {
    "learner-0": Reading(11, {0: (2, 8)}, 2.0),
    "paramserver-0": Reading(2, {0: (2, 8)}, 0.0),
    "actor-0": Reading(3, {0: (2, 8)}, 384.0, 32.0),
    "actor-1": Reading(4, {0: (2, 8)}, 384.0),
}
KILLED = Recovery(BEFORE, [(1, 10)], 32, tuple(BEFORE), {"learner-0"})


def test_a_run_has_recovered_when_all_processes_progress() -> None:
    assert KILLED.missing(Observation(0.0, AFTER)) == []


@pytest.mark.parametrize(
    ("process", "change", "word"),
    [
        ("learner-0", {"pid": 1}, "not replaced"),
        ("learner-0", {"work": 1.0}, "1 updates"),
        ("learner-0", {"versions": {0: (1, 10)}}, "nothing beyond"),
        ("paramserver-0", {"versions": {0: (1, 10)}}, "nothing beyond"),
        ("actor-0", {"versions": {0: (1, 10)}}, "nothing beyond"),
        ("actor-1", {"work": 352.0}, "sent 32 unrolls"),
        ("actor-0", {"unacknowledged": 96.0}, "acknowledgement"),
    ],
)
def test_a_process_without_progress_is_named_as_missing(process: str, change: dict[str, object], word: str) -> None:
    now = AFTER | {process: replace(AFTER[process], **change)}  # type: ignore[arg-type]
    missing = KILLED.missing(Observation(0.0, now))
    assert len(missing) == 1
    assert process in missing[0]
    assert word in missing[0]


def test_a_process_that_does_not_answer_has_not_recovered() -> None:
    now = {name: reading for name, reading in AFTER.items() if name != "actor-1"}
    assert KILLED.missing(Observation(0.0, now)) == ["actor-1 does not answer"]


def test_the_progress_of_a_replaced_process_starts_at_zero() -> None:
    recovery = Recovery(BEFORE, [(1, 10)], 32, tuple(BEFORE), {"actor-0"})
    now = AFTER | {"learner-0": Reading(1, {0: (1, 14)}, 14.0), "actor-0": Reading(33, {0: (2, 8)}, 64.0)}
    assert recovery.missing(Observation(0.0, now | {"learner-0": Reading(1, {0: (1, 11)}, 14.0)})) == []


def test_every_agent_must_progress() -> None:
    children = ("learner-0", "learner-1", "paramserver-0", "actor-0")
    recovery = Recovery({}, [(1, 10), (3, 5)], 32, children)
    now = {
        "learner-0": Reading(1, {0: (1, 11)}, 2.0),
        "learner-1": Reading(2, {1: (3, 5)}, 2.0),
        "paramserver-0": Reading(3, {0: (1, 11), 1: (2, 90)}, 0.0),
        "actor-0": Reading(4, {}, 64.0),  # it may act for either agent
    }
    assert recovery.missing(Observation(0.0, now)) == [
        "learner-1 holds (3, 5) of agent 1, nothing beyond (3, 5)",
        "paramserver-0 holds (2, 90) of agent 1, nothing beyond (3, 5)",
    ]


def test_a_service_without_weights_only_has_to_answer() -> None:
    recovery = Recovery({}, [(1, 10)], 32, ("bandit-0",))
    assert recovery.missing(Observation(0.0, {"bandit-0": Reading(5, {0: (0, 0)}, 0.0)})) == []
