"""One buffer of memory, viewed time-major."""

from __future__ import annotations

import numpy as np
import torch

from herd.contract.spaces import discrete
from herd.contract.unroll import UnrollLayout
from herd.training.batch import ALIGNMENT, BatchBuffer

LAYOUT = UnrollLayout(
    unroll_length=3, frame_stack=2, frame_shape=(2, 2, 1), actions=discrete(2), num_parameters=2, state_size=6, burn_in=1, num_tasks=9
)


def _arrays(num_unrolls: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    highest = {field.name: 2 if field.dtype == bool else 100 for field in LAYOUT.fields}
    return {field.name: random.integers(0, highest[field.name], (num_unrolls, *field.shape)).astype(field.dtype) for field in LAYOUT.fields}


def test_a_batch_is_time_major() -> None:
    arrays = _arrays(4)
    batch = BatchBuffer.from_unrolls(LAYOUT, arrays).batch
    for name, tensor in batch.tensors():
        if name == "is_replayed":
            continue
        expected = arrays[{"task_ids": "task_id"}.get(name, name)]
        if name not in {"task_ids", "last_action", "last_reward", "initial_core_state"}:
            expected = expected.swapaxes(0, 1)
        np.testing.assert_array_equal(tensor.numpy(), expected, err_msg=name)
    assert not batch.is_replayed.any()
    assert batch.num_unrolls == 4
    np.testing.assert_array_equal(batch.trained.numpy(), arrays["row_valid"].T[1:])


def test_trained_rows_are_counted_without_burn_in_and_filled_up_rows() -> None:
    buffer = BatchBuffer(LAYOUT, 5)
    # The first row is the burn-in; the last unroll is left over from an earlier batch.
    buffer.arrays["row_valid"][...] = [[1, 1, 0], [0, 1, 1], [1, 0, 0], [1, 1, 1], [1, 1, 1]]
    buffer.set_counts(3, 1)
    assert buffer.num_trained_rows == (3, 2)
    buffer.set_counts(2, 0)
    assert buffer.num_trained_rows == (3, 0)


def test_a_part_of_a_batch_shares_its_memory() -> None:
    batch = BatchBuffer.from_unrolls(LAYOUT, _arrays(5)).batch
    part = batch.part(1, 3)
    for (name, whole), (_, some) in zip(batch.tensors(), part.tensors(), strict=True):
        unroll_dimension = 0 if name in {"task_ids", "is_replayed", "last_action", "last_reward", "initial_core_state"} else 1
        assert torch.equal(some, whole.narrow(unroll_dimension, 1, 2)), name
        assert some.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def test_all_fields_are_aligned_views_of_one_buffer() -> None:
    buffer = BatchBuffer(LAYOUT, 3)
    starts = {tensor.data_ptr() % ALIGNMENT for _, tensor in buffer.batch.tensors()}
    assert len({tensor.untyped_storage().data_ptr() for _, tensor in buffer.batch.tensors()}) == 1
    assert len(starts) == 1
    buffer.arrays["rewards"][1, 2] = 5.0
    assert buffer.batch.rewards[2, 1] == 5.0
    assert buffer.to(torch.device("cpu")) is buffer.batch  # no copy if it is already there
    copied = buffer.to(torch.device("meta"))
    assert copied.rewards.shape == (3, 3)
    assert copied.rewards.device.type == "meta"
