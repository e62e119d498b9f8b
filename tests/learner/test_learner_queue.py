from __future__ import annotations

import threading
import time

from herd_learner.intake.queue import QueuedUnroll, UnrollQueue

from tests.learner.small_unrolls import LAYOUT


def _fresh(unroll: QueuedUnroll) -> bool:
    return False


def _put(queue: UnrollQueue, updates: list[int]) -> list[QueuedUnroll]:
    """Put one message into the queue; the versions distinguish its unrolls."""
    arrays = LAYOUT.allocate(len(updates))
    unrolls = [QueuedUnroll(arrays, row, (0, 1), (1, updates[row]), 0, 8) for row in range(len(updates))]
    queue.put(unrolls)
    return unrolls


def _updates(unrolls: list[QueuedUnroll]) -> list[int]:
    return [unroll.policy_version[1] for unroll in unrolls]


def test_unrolls_are_taken_in_order_across_messages() -> None:
    queue = UnrollQueue()
    for message in ([0, 1, 2], [3], [4, 5]):
        _put(queue, message)
    assert _updates(queue.take(4, _fresh, 0)[0]) == [0, 1, 2, 3]
    assert len(queue) == 2
    assert queue.take(3, _fresh, 0) == ([], [])
    assert _updates(queue.take(2, _fresh, 0)[0]) == [4, 5]


def test_staleness_is_judged_at_consumption_not_at_arrival() -> None:
    queue = UnrollQueue()
    learner_updates = 0

    def is_stale(unroll: QueuedUnroll) -> bool:
        return learner_updates - unroll.policy_version[1] > 2

    _put(queue, [0, 1, 0, 2])
    taken, stale = queue.take(1, is_stale, 0)
    assert (_updates(taken), stale) == ([0], [])
    learner_updates = 3
    taken, stale = queue.take(2, is_stale, 0)
    assert (_updates(taken), _updates(stale)) == ([1, 2], [0])
    assert len(queue) == 0


def test_stale_unrolls_are_returned_at_once_if_too_few_remain() -> None:
    """They must leave the ledger and return their credit; otherwise nothing new could ever arrive."""
    queue = UnrollQueue()
    _put(queue, [0, 5, 0])
    start = time.monotonic()
    taken, stale = queue.take(3, lambda unroll: unroll.policy_version[1] == 0, timeout=20)
    assert time.monotonic() - start < 10
    assert (taken, _updates(stale), len(queue)) == ([], [0, 0], 1)


def test_take_wakes_for_a_message_from_another_thread() -> None:
    queue = UnrollQueue()
    result: list[tuple[list[QueuedUnroll], list[QueuedUnroll]]] = []
    taker = threading.Thread(target=lambda: result.append(queue.take(2, _fresh, timeout=60)))
    taker.start()
    _put(queue, [0])
    _put(queue, [1])
    taker.join(timeout=30)
    assert not taker.is_alive()
    assert _updates(result[0][0]) == [0, 1]


def test_no_unroll_is_lost_between_two_threads() -> None:
    queue = UnrollQueue()
    num_messages, size, batch_size = 300, 3, 5
    places = threading.Semaphore(4)  # stands in for credit, which bounds the queue

    def produce() -> None:
        for message in range(num_messages):
            places.acquire()
            _put(queue, list(range(message * size, (message + 1) * size)))

    producer = threading.Thread(target=produce)
    producer.start()
    seen: list[int] = []
    released = 0
    while len(seen) < num_messages * size:
        unrolls, _ = queue.take(min(batch_size, num_messages * size - len(seen)), _fresh, timeout=30)
        assert unrolls
        seen += _updates(unrolls)
        while released < len(seen) // size:
            released += 1
            places.release()
    producer.join()
    assert seen == list(range(num_messages * size))
