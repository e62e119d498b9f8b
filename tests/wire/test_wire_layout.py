from __future__ import annotations

import numpy as np

from herd.contract.spaces import NO_FRAMES, discrete
from herd.contract.unroll import DTYPES, UnrollLayout

ATARI = UnrollLayout(unroll_length=20, frame_stack=4, frame_shape=(84, 84, 1), actions=discrete(6), num_parameters=6)
EVERYTHING = UnrollLayout(3, 2, (5, 4, 1), discrete(3), 3, state_size=16, vector_size=6, instruction_length=2, num_tasks=2, num_words=10)


def test_fields_match_the_protocol_in_order() -> None:
    assert [(field.name, field.dtype.str, field.shape) for field in EVERYTHING.fields] == [
        ("history_frames", "|u1", (1, 5, 4, 1)),
        ("frames", "|u1", (4, 5, 4, 1)),
        ("observations", "<f4", (4, 6)),
        ("game_reset", "|b1", (4,)),
        ("core_reset", "|b1", (4,)),
        ("actions", "<i4", (3,)),
        ("rewards", "<f4", (3,)),
        ("terminated", "|b1", (3,)),
        ("truncated", "|b1", (3,)),
        ("row_valid", "|b1", (3,)),
        ("behaviour_parameters", "<f4", (3, 3)),
        ("inverse_temperature", "<f4", (3,)),
        ("policy_version", "<i8", (2, 2)),
        ("initial_core_state", "<f4", (16,)),
        ("last_action", "<i4", ()),
        ("last_reward", "<f4", ()),
        ("instructions", "<i2", (4, 2)),
        ("environment_slot", "<i4", ()),
        ("task_id", "<i4", ()),
        ("episode_id", "<i8", ()),
        ("index_in_episode", "<i4", ()),
    ]


def test_fields_without_elements_are_not_sent() -> None:
    plain = UnrollLayout(unroll_length=3, frame_stack=1, frame_shape=(5, 4, 1), actions=discrete(3), num_parameters=3)
    absent = {field.name for field in EVERYTHING.fields} - {field.name for field in plain.fields}
    assert absent == {"history_frames", "observations", "initial_core_state", "instructions"}
    vectors = UnrollLayout(unroll_length=3, frame_stack=1, frame_shape=NO_FRAMES, actions=discrete(3), num_parameters=3, vector_size=2)
    assert {field.name for field in plain.fields} ^ {field.name for field in vectors.fields} == {"frames", "observations"}


def test_allocated_arrays_have_the_announced_sizes() -> None:
    arrays = ATARI.allocate(7)
    assert list(arrays) == [field.name for field in ATARI.fields]
    assert sum(array.nbytes for array in arrays.values()) == 7 * ATARI.bytes_per_unroll
    assert max(array.nbytes for array in arrays.values()) == ATARI.max_frame_bytes(7) == 7 * 21 * 84 * 84
    assert all(array.dtype.str in DTYPES and not np.any(array) for array in arrays.values())
