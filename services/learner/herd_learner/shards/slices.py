"""Distributes parameters over the shards that publish them: about 1/N of the bytes each, as in IMPALA Fig. 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def deal_tensors(num_bytes: Mapping[str, int], num_shards: int) -> list[list[str]]:
    """Return names by shard: the largest tensor goes to the shard with the fewest bytes, equal ones by name, so all shards agree."""
    slices: list[list[str]] = [[] for _ in range(num_shards)]
    totals = [0] * num_shards
    for name in sorted(num_bytes, key=lambda name: (-num_bytes[name], name)):
        least = totals.index(min(totals))
        slices[least].append(name)
        totals[least] += num_bytes[name]
    return slices


def share(total: int, rank: int, num_shards: int) -> int:
    """Return this shard's part of ``total`` unrolls: 32 over 3 shards is 11 + 11 + 10."""
    return total // num_shards + (rank < total % num_shards)
