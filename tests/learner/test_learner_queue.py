from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from herd_learner.queue import QueuedUnroll, UnrollQueue
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.learner.small_unrolls import LAYOUT


def _fresh(unroll: QueuedUnroll) -> bool:
    return False


def _put(queue: UnrollQueue, updates: list[int]) -> list[QueuedUnroll]:
    """One message; each unroll's version tells it apart."""
    block = queue.new_block(len(updates))
    unrolls = [QueuedUnroll(block, row, (0, 1), (1, updates[row]), 0, 8) for row in range(len(updates))]
    queue.put(unrolls)
    return unrolls


def _updates(unrolls: list[QueuedUnroll]) -> list[int]:
    return [unroll.policy_version[1] for unroll in unrolls]


def test_first_in_first_out_across_blocks() -> None:
    queue = UnrollQueue(LAYOUT)
    for message in ([0, 1, 2], [3], [4, 5]):
        _put(queue, message)
    assert _updates(queue.take(4, _fresh, 0)[0]) == [0, 1, 2, 3]
    assert len(queue) == 2
    assert queue.take(3, _fresh, 0) == ([], [])
    assert _updates(queue.take(2, _fresh, 0)[0]) == [4, 5]


def test_staleness_is_judged_at_consumption_not_at_arrival() -> None:
    queue = UnrollQueue(LAYOUT)
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


def test_stale_ones_are_handed_out_at_once_where_too_few_are_left() -> None:
    """They must leave the ledger and give their credit back, or nothing new could ever arrive."""
    queue = UnrollQueue(LAYOUT)
    _put(queue, [0, 5, 0])
    start = time.monotonic()
    taken, stale = queue.take(3, lambda unroll: unroll.policy_version[1] == 0, timeout=20)
    assert time.monotonic() - start < 10
    assert (taken, _updates(stale), len(queue)) == ([], [0, 0], 1)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_a_block_is_used_again_only_after_its_last_unroll_is_released(order: list[int]) -> None:
    queue = UnrollQueue(LAYOUT)
    unrolls = _put(queue, [0, 1, 2])
    taken, _ = queue.take(3, _fresh, 0)
    for row in order:
        assert queue.new_block(3) is not unrolls[0].block
        queue.release([taken[row]])
    assert queue.new_block(3) is unrolls[0].block
    assert queue.new_block(3) is not unrolls[0].block


def test_blocks_of_another_size_are_not_mixed_up() -> None:
    queue = UnrollQueue(LAYOUT)
    block = queue.new_block(2)
    queue.give_back(block)
    other = queue.new_block(3)
    assert other is not block
    assert {len(array) for array in other.arrays.values()} == {3}
    assert queue.new_block(2) is block


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(1, 4), st.data())
def test_memory_of_unrolls_that_wait_is_never_handed_out(sizes: list[int], batch_size: int, data: st.DataObject) -> None:
    queue = UnrollQueue(LAYOUT)
    written, taken = 0, []
    for size in sizes:
        block = queue.new_block(size)
        marks = np.arange(written, written + size)
        block.arrays["episode_id"][...] = marks
        queue.put([QueuedUnroll(block, row, (0, 1), (1, 0), 0, 8) for row in range(size)])
        written += size
        if data.draw(st.booleans()):
            unrolls, _ = queue.take(batch_size, _fresh, 0)
            taken += [int(unroll.block.arrays["episode_id"][unroll.row]) for unroll in unrolls]
            queue.release(unrolls)
    rest, _ = queue.take(len(queue), _fresh, 0)
    taken += [int(unroll.block.arrays["episode_id"][unroll.row]) for unroll in rest]
    assert taken == list(range(written))


def test_take_wakes_up_for_a_message_from_another_thread() -> None:
    queue = UnrollQueue(LAYOUT)
    result: list[tuple[list[QueuedUnroll], list[QueuedUnroll]]] = []
    taker = threading.Thread(target=lambda: result.append(queue.take(2, _fresh, timeout=60)))
    taker.start()
    _put(queue, [0])
    _put(queue, [1])
    taker.join(timeout=30)
    assert not taker.is_alive()
    assert _updates(result[0][0]) == [0, 1]


def test_two_threads_lose_and_tear_nothing() -> None:
    queue = UnrollQueue(LAYOUT)
    num_messages, size, batch_size = 300, 3, 5
    places = threading.Semaphore(4)  # as credit bounds what waits

    def produce() -> None:
        for message in range(num_messages):
            places.acquire()
            block = queue.new_block(size)
            for array in block.arrays.values():
                array[...] = message % 2
            block.arrays["episode_id"][...] = np.arange(size) + message * size
            queue.put([QueuedUnroll(block, row, (0, 1), (1, 0), 0, 8) for row in range(size)])

    producer = threading.Thread(target=produce)
    producer.start()
    seen: list[int] = []
    released = 0
    while len(seen) < num_messages * size:
        unrolls, _ = queue.take(min(batch_size, num_messages * size - len(seen)), _fresh, timeout=30)
        assert unrolls
        for unroll in unrolls:
            mark = int(unroll.block.arrays["episode_id"][unroll.row])
            assert (unroll.block.arrays["frames"][unroll.row] == mark // size % 2).all()
            seen.append(mark)
        queue.release(unrolls)
        while released < len(seen) // size:
            released += 1
            places.release()
    producer.join()
    assert seen == list(range(num_messages * size))
