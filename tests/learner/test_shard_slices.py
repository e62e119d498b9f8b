from __future__ import annotations

import pytest
from herd_learner.group.collectives import share
from herd_learner.publication import deal_tensors
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(("total", "size", "parts"), [(32, 3, [11, 11, 10]), (32, 1, [32]), (2, 3, [1, 1, 0]), (7, 7, [1] * 7)])
def test_share_divides_a_batch_as_expected(total: int, size: int, parts: list[int]) -> None:
    assert [share(total, rank, size) for rank in range(size)] == parts


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_shares_add_up_and_differ_by_at_most_one(total: int, size: int) -> None:
    parts = [share(total, rank, size) for rank in range(size)]
    assert sum(parts) == total
    assert max(parts) - min(parts) <= 1
    assert parts == sorted(parts, reverse=True)


@given(st.dictionaries(st.text(max_size=5), st.integers(1, 10**9), max_size=30), st.integers(1, 8))
def test_tensors_are_dealt_once_in_slices_of_similar_size(num_bytes: dict[str, int], size: int) -> None:
    slices = deal_tensors(num_bytes, size)
    assert sorted(name for names in slices for name in names) == sorted(num_bytes)
    largest = max(num_bytes.values(), default=0)
    heaviest = max(sum(num_bytes[name] for name in names) for names in slices)
    assert heaviest <= sum(num_bytes.values()) / size + largest


def test_dealing_does_not_depend_on_the_order_of_tensors() -> None:
    num_bytes = {"a": 3, "b": 3, "c": 3, "d": 1}
    assert deal_tensors(num_bytes, 2) == deal_tensors(dict(reversed(num_bytes.items())), 2) == [["a", "c"], ["b", "d"]]
