from __future__ import annotations

from random import Random

from herd.rpc.request import LONGEST_SECONDS, RetryTimer
from tests.clock import Clock


def delay(timer: RetryTimer, clock: Clock) -> float:
    """Seconds until the timer is due, to a millisecond."""
    start = clock.now
    while not timer.due:
        clock.now += 0.001
    return clock.now - start


def test_delays_double_up_to_a_maximum_and_reset_after_an_answer() -> None:
    clock = Clock()
    timer = RetryTimer(clock, Random(1))
    assert not timer.running
    assert not timer.due
    for base in (1.0, 2.0, 4.0, 8.0, LONGEST_SECONDS, LONGEST_SECONDS, 1.0):
        if base == 1.0:
            timer.reset()
            assert not timer.running
            timer.start()
        waited = delay(timer, clock)
        assert 0.5 * base - 0.002 <= waited <= 1.5 * base + 0.002
        timer.restart()


def test_delays_are_randomized_per_client() -> None:
    delays = set()
    for seed in range(20):
        clock = Clock()
        timer = RetryTimer(clock, Random(seed))
        timer.start()
        delays.add(round(delay(timer, clock), 3))
    assert len(delays) > 15
    assert max(delays) - min(delays) > 0.5


def test_starting_a_running_timer_does_not_postpone_it() -> None:
    clock = Clock()
    timer = RetryTimer(clock, Random(1))
    timer.start()
    clock.now += 1.6
    timer.start()
    assert timer.due
