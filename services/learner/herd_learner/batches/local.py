"""Experience replay of IMPALA, section 5.2.2: whole unrolls, drawn uniformly, first-in-first-out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from herd.contract.unroll import FieldSpec

    Arrays = dict[str, NDArray[np.generic]]


class UnrollReplay:
    """A ring of the newest ``capacity`` unrolls. Its memory is used only as it fills."""

    def __init__(self, fields: Sequence[FieldSpec], capacity: int, seed: int) -> None:
        self._arrays: Arrays = {field.name: np.zeros((capacity, *field.shape), field.dtype) for field in fields}
        self._versions = np.zeros((capacity, 2), np.int64)
        self._capacity = capacity
        self._next = 0
        self._size = 0
        self.random = np.random.default_rng(seed)

    def __len__(self) -> int:
        """Return the number of stored unrolls."""
        return self._size

    def insert(self, batch: Arrays, versions: Sequence[tuple[int, int]]) -> None:
        """Copy the first rows of ``batch``, one unroll for each of ``versions``: (lineage, learner_updates) of the policy that began it.

        The oldest unrolls are replaced.
        """
        num_unrolls = len(versions)
        rows = (self._next + np.arange(num_unrolls)) % self._capacity
        for name, array in self._arrays.items():
            array[rows] = batch[name][:num_unrolls]
        self._versions[rows] = versions
        self._next = int((self._next + num_unrolls) % self._capacity)
        self._size = min(self._size + num_unrolls, self._capacity)

    def sample_into(self, batch: Arrays, start: int, num_unrolls: int) -> list[tuple[int, int]]:
        """Draw ``num_unrolls`` uniformly, with replacement, into the rows of ``batch`` from ``start``; returns their versions."""
        rows = self.random.integers(0, self._size, num_unrolls)
        for name, array in self._arrays.items():
            batch[name][start : start + num_unrolls] = array[rows]
        return [(int(lineage), int(updates)) for lineage, updates in self._versions[rows]]
