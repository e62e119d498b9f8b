from __future__ import annotations

import pytest

from herd.launch.restarts import ExitRecord, Failures, GiveUp, Restart, RestartPolicy, after_exit, fails_for_good
from herd.service import EXIT_SHARD_LOST

POLICY = RestartPolicy(first_delay_seconds=0.5, max_delay_seconds=3.0, max_failures=5)


def exits(count: int, *, exit_code: int = 1, progressed: bool = False) -> tuple[Failures, list[Restart | GiveUp]]:
    failures, decisions = Failures(), []
    for _ in range(count):
        failures, decision = after_exit(failures, exit_code=exit_code, progressed=progressed, policy=POLICY)
        decisions.append(decision)
    return failures, decisions


def test_restart_delays_double_up_to_a_maximum() -> None:
    _, decisions = exits(4)
    assert decisions == [Restart(0.5), Restart(1.0), Restart(2.0), Restart(3.0)]


def test_a_child_is_given_up_at_its_fifth_failure_in_a_row() -> None:
    failures, decisions = exits(5)
    assert isinstance(decisions[3], Restart)
    assert isinstance(decisions[4], GiveUp)
    assert decisions[4].exit_code == 1
    assert "5 times in a row" in decisions[4].reason
    assert failures.restarts == 4


def test_a_child_that_makes_progress_is_always_restarted() -> None:
    failures, decisions = exits(40, exit_code=-9, progressed=True)
    assert set(decisions) == {Restart(0.5)}
    assert failures == Failures(in_a_row=1, restarts=40)


def test_progress_resets_the_failure_count() -> None:
    failures, _ = exits(4)
    failures, decision = after_exit(failures, exit_code=1, progressed=True, policy=POLICY)
    assert decision == Restart(0.5)
    assert failures == Failures(in_a_row=1, restarts=5)


def test_bad_input_is_never_retried() -> None:
    _, decision = after_exit(Failures(), exit_code=2, progressed=True, policy=POLICY)
    assert isinstance(decision, GiveUp)
    assert decision.exit_code == 2


def test_an_unrequested_clean_exit_counts_as_a_failure() -> None:
    _, decisions = exits(5, exit_code=0)
    assert isinstance(decisions[-1], GiveUp)


def test_a_shard_that_lost_another_does_not_count_as_a_failure() -> None:
    failures, decisions = exits(9, exit_code=EXIT_SHARD_LOST)
    assert set(decisions) == {Restart(0.5)}
    assert failures == Failures(in_a_row=0, restarts=9)


def test_an_unexplained_group_failure_without_progress_is_counted() -> None:
    failures, _ = after_exit(Failures(in_a_row=3), exit_code=EXIT_SHARD_LOST, progressed=False, policy=POLICY, is_explained=False)
    assert failures.in_a_row == 4
    _, given_up = after_exit(failures, exit_code=EXIT_SHARD_LOST, progressed=False, policy=POLICY, is_explained=False)
    assert isinstance(given_up, GiveUp)
    failures, decision = after_exit(failures, exit_code=EXIT_SHARD_LOST, progressed=True, policy=POLICY, is_explained=False)
    assert (failures.in_a_row, decision) == (0, Restart(0.5))


@pytest.mark.parametrize(
    ("before", "now", "progressed", "for_good"),
    [
        ((1, "ValueError: no such device", 3.0), (1, "ValueError: no such device", 4.0), False, True),
        ((1, "at 12:03:59, pid 77, 0x7f3a", 3.0), (1, "at 12:04:01, pid 78, 0x7eee", 4.0), False, True),
        ((-11, "", 3.0), (-11, "", 3.0), False, True),  # SIGSEGV
        ((1, "the same", 30.0), (1, "the same", 30.0), False, True),
        ((1, "the same", 30.1), (1, "the same", 3.0), False, False),
        ((1, "the same", 3.0), (1, "the same", 30.1), False, False),
        ((1, "one", 3.0), (1, "another", 3.0), False, False),
        ((1, "the same", 3.0), (3, "the same", 3.0), False, False),
        ((1, "the same", 3.0), (1, "the same", 3.0), True, False),
        ((-9, "", 3.0), (-9, "", 3.0), False, False),  # killed from outside
        ((-15, "", 3.0), (-15, "", 3.0), False, False),
        ((0, "", 3.0), (0, "", 3.0), False, False),
        ((EXIT_SHARD_LOST, "", 3.0), (EXIT_SHARD_LOST, "", 3.0), False, False),
    ],
)
def test_the_same_early_failure_twice_is_final(
    before: tuple[int, str, float], now: tuple[int, str, float], progressed: bool, for_good: bool
) -> None:
    policy = RestartPolicy(early_seconds=30.0)
    assert not fails_for_good(None, ExitRecord(*now), progressed=progressed, policy=policy)
    assert fails_for_good(ExitRecord(*before), ExitRecord(*now), progressed=progressed, policy=policy) is for_good
