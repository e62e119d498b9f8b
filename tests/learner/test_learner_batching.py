from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import torch
from herd_learner.batches.assembler import BatchAssembler
from herd_learner.intake.queue import QueuedUnroll
from hypothesis import given, settings
from hypothesis import strategies as st

from herd.config.run import RunSettings
from herd.protocols.unrolls import arrays as unroll_arrays
from herd.protocols.unrolls.arrays import APART_BYTES, MessagePlan
from herd.training.batch import BatchBuffer, trained_fields
from tests.learner.small_unrolls import LAYOUT


def _settings(batch_size: int, fraction: float = 0.0, capacity: int = 100, minimum: int = 1) -> RunSettings:
    replay = {"kind": "local", "fraction": fraction, "capacity_unrolls": capacity, "minimum_fill_unrolls": minimum}
    return RunSettings.model_validate(
        {
            "learner": {"batch_size": batch_size},
            "replay": replay if fraction else {"kind": "none"},
            "actor": {"environments": 1},
        }
    )


def _queued(sizes: list[int], apart_bytes: int = APART_BYTES) -> list[QueuedUnroll]:
    """Receive messages with these numbers of unrolls; the values in each unroll are determined by its number."""
    unrolls: list[QueuedUnroll] = []
    with patch.object(unroll_arrays, "APART_BYTES", apart_bytes):
        plans = {size: MessagePlan(LAYOUT, size) for size in sizes}
    for size in sizes:
        arrays = LAYOUT.allocate(size)
        for row in range(size):
            for name, values in _values(len(unrolls) + 1 + row).items():
                arrays[name][row] = values
        received = plans[size].arrays([array.tobytes() for array in arrays.values()])
        unrolls += [QueuedUnroll(received, row, (0, 1), (1, 0), 0, 8) for row in range(size)]
    return unrolls


def _values(number: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(number)
    return {
        field.name: random.integers(0, 2 if field.dtype == bool else 100, field.shape).astype(field.dtype)
        for field in trained_fields(LAYOUT)
    }


def _assemble(assembler: BatchAssembler, online: list[QueuedUnroll]) -> BatchBuffer:
    return assembler.assemble(online, with_replayed=assembler.wait_for_replayed())


def _holds(buffer: BatchBuffer, place: int, number: int) -> bool:
    return all(np.array_equal(buffer.arrays[name][place], values) for name, values in _values(number).items())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([1, 1, 1, 2, 3, 4]), min_size=1, max_size=8), st.sampled_from([1, APART_BYTES]), st.data())
def test_batches_hold_the_given_unrolls_in_order(sizes: list[int], apart_bytes: int, data: st.DataObject) -> None:
    """Adjacent unrolls of a message are copied together; gaps (dropped stale unrolls) and borders between messages must not break this."""
    unrolls = _queued(sizes, apart_bytes)
    numbers = sorted(data.draw(st.sets(st.integers(1, len(unrolls)), min_size=1)))
    assembler = BatchAssembler(LAYOUT, _settings(len(numbers)), torch.device("cpu"))
    batch = _assemble(assembler, [unrolls[number - 1] for number in numbers])
    assert batch.batch.num_unrolls == len(numbers)
    assert all(_holds(batch, place, number) for place, number in enumerate(numbers))


def test_rows_of_different_messages_are_not_copied_as_one_block() -> None:
    """Rows 0 and 1 of one message, then row 2 of the next, whose first two unrolls were stale."""
    unrolls = _queued([3, 3])
    batch = _assemble(BatchAssembler(LAYOUT, _settings(3), torch.device("cpu")), [unrolls[0], unrolls[1], unrolls[5]])
    assert [_holds(batch, place, number) for place, number in enumerate((1, 2, 6))] == [True] * 3


@pytest.mark.parametrize(("batch_size", "fraction", "num_replayed"), [(8, 0.5, 4), (8, 0.25, 2), (5, 0.5, 2), (8, 0.0, 0)])
def test_replayed_unrolls_follow_the_online_ones_in_a_batch(batch_size: int, fraction: float, num_replayed: int) -> None:
    run = _settings(batch_size, fraction)
    assert (run.num_replayed_unrolls, run.num_online_unrolls) == (num_replayed, batch_size - num_replayed)
    assembler = BatchAssembler(LAYOUT, run, torch.device("cpu"))
    assert (assembler.replay is None) == (num_replayed == 0)
    num_online = run.num_online_unrolls
    unrolls = _queued([num_online] * 6)
    first = _assemble(assembler, unrolls[:num_online]).batch
    assert first.num_unrolls == num_online  # replay was empty before: a batch does not draw from the unrolls that came with it
    for turn in range(1, 6):
        seen = (turn + 1) * num_online
        batch = _assemble(assembler, unrolls[seen - num_online : seen])
        assert all(_holds(batch, place, seen - num_online + place + 1) for place in range(num_online))
        assert batch.batch.is_replayed.tolist() == [False] * num_online + [True] * num_replayed
        for place in range(num_online, batch_size):
            assert any(_holds(batch, place, number) for number in range(1, seen - num_online + 1))
        if assembler.replay is not None:
            assert len(assembler.replay) == seen  # only fresh unrolls are inserted, each once


def test_nothing_is_replayed_below_the_minimum_fill() -> None:
    assembler = BatchAssembler(LAYOUT, _settings(4, 0.5, minimum=5), torch.device("cpu"), num_slots=2)
    unrolls = _queued([2] * 6)
    sizes = [_assemble(assembler, unrolls[2 * turn : 2 * turn + 2]).batch.num_unrolls for turn in range(6)]
    assert assembler.wait_for_replayed()
    assert assembler.assemble(unrolls[:2], with_replayed=False).batch.num_unrolls == 2  # another shard is below its minimum
    assert sizes == [2, 2, 2, 4, 4, 4]  # held before each batch: 0, 2, 4, 6, ...


def test_replay_evicts_the_oldest_unrolls() -> None:
    assembler = BatchAssembler(LAYOUT, _settings(4, 0.5, capacity=3), torch.device("cpu"))
    unrolls = _queued([2] * 10)
    _assemble(assembler, unrolls[:2])
    for turn in range(1, 10):
        batch = _assemble(assembler, unrolls[2 * turn : 2 * turn + 2])
        newest = range(max(1, 2 * turn - 2), 2 * turn + 1)
        assert all(any(_holds(batch, place, number) for number in newest) for place in (2, 3))


def test_assembling_a_batch_does_not_overwrite_the_previous_one() -> None:
    assembler = BatchAssembler(LAYOUT, _settings(2), torch.device("cpu"), num_slots=2)
    unrolls = _queued([2, 2, 2])
    first, second = _assemble(assembler, unrolls[:2]), _assemble(assembler, unrolls[2:4])
    assert all(_holds(first, place, place + 1) for place in range(2))
    assert all(_holds(second, place, place + 3) for place in range(2))
    assert _assemble(assembler, unrolls[4:]) is first
