"""IMPALA section 5.2.2: whole unrolls are drawn uniformly from a first-in-first-out buffer."""

from __future__ import annotations

import numpy as np
import pytest
from herd_learner.batches.local import UnrollReplay
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.learner.small_unrolls import LAYOUT, small_arrays


def _insert(replay: UnrollReplay, marks: list[int]) -> None:
    arrays = small_arrays(len(marks), marks=marks)
    arrays["frames"][...] = np.array(marks, np.uint8)[:, None, None, None, None]
    replay.insert(arrays, [(1, mark) for mark in marks])


def _draw(replay: UnrollReplay, num_unrolls: int) -> list[int]:
    batch = small_arrays(num_unrolls + 1)
    versions = replay.sample_into(batch, 1, num_unrolls)
    marks: list[int] = batch["episode_id"][1:].tolist()
    assert versions == [(1, mark) for mark in marks]
    # An unroll stays whole: all its fields come from the same row.
    assert (batch["frames"][1:, 0, 0, 0, 0] == np.array(marks) % 256).all()
    return marks


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 7), st.lists(st.integers(1, 10), min_size=1, max_size=8))
def test_replay_holds_exactly_the_newest_unrolls(capacity: int, sizes: list[int]) -> None:
    replay = UnrollReplay(LAYOUT.fields, capacity, seed=1)
    written = 0
    for size in sizes:
        _insert(replay, list(range(written, written + size)))
        written += size
        assert len(replay) == min(written, capacity)
    # 400 draws miss one of at most 7 unrolls with probability 7 (6/7)^400, below 1e-25.
    assert set(_draw(replay, 400)) == set(range(max(0, written - capacity), written))


@pytest.mark.parametrize("num_inserted", [13, 50, 77])
def test_draws_are_uniform(num_inserted: int) -> None:
    """Chi-square test over 50 places: partly filled, exactly filled, and after one and a half rounds."""
    replay = UnrollReplay(LAYOUT.fields, 50, seed=4)
    for first in range(0, num_inserted, 11):
        _insert(replay, list(range(first, min(first + 11, num_inserted))))
    num_held, num_draws = min(num_inserted, 50), 20_000
    counts = np.bincount(_draw(replay, num_draws), minlength=num_inserted)[num_inserted - num_held :]
    expected = num_draws / num_held
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # Its mean equals the degrees of freedom, and its variance is twice that: the limit is five standard deviations, with a fixed seed.
    degrees = num_held - 1
    assert abs(chi_square - degrees) < 5 * (2 * degrees) ** 0.5


def test_inserted_unrolls_are_copied() -> None:
    replay = UnrollReplay(LAYOUT.fields, 2, seed=1)
    arrays = small_arrays(1, marks=[5])
    replay.insert(arrays, [(1, 0)])
    arrays["episode_id"][...] = 6
    batch = small_arrays(3)
    replay.sample_into(batch, 0, 3)
    assert batch["episode_id"].tolist() == [5, 5, 5]
