"""The random choice of faults: every kind on every possible target, and the same for the same seed."""

from __future__ import annotations

from random import Random

from benchmarks.soak.faults import CATALOGUE, KINDS, Fault, Targets, draw

TARGETS = Targets(
    processes=("paramserver-0", "learner-0", "actor-0", "actor-1"),
    servers=("paramserver-0", "learner-0"),
    links=("learner-0>paramserver-0", "actor-0>learner-0", "actor-0>paramserver-0"),
)


def drawn(seed: int, count: int) -> list[tuple[Fault, ...]]:
    random = Random(seed)
    return [draw(random, TARGETS, long_seconds=36.0) for _ in range(count)]


def test_every_kind_of_fault_is_drawn_for_every_valid_target() -> None:
    seen = {(fault.kind, fault.target) for faults in drawn(3, 3000) for fault in faults}
    assert seen == {(kind, target) for kind in KINDS for target in TARGETS.of(kind)}


def test_simultaneous_faults_have_different_targets() -> None:
    pairs = [faults for faults in drawn(5, 2000) if len(faults) == 2]
    assert 200 < len(pairs) < 500
    assert all(first.target != second.target for first, second in pairs)


def test_durations_are_within_their_range() -> None:
    for fault in (fault for faults in drawn(6, 2000) for fault in faults):
        shortest, longest = CATALOGUE[fault.kind].seconds
        assert fault.seconds == 36.0 if fault.kind == "stop_long" else shortest <= fault.seconds <= longest
        assert (fault.bytes_per_second > 0) == (fault.kind in {"slow", "lose"})
