"""Tensors of which each shard holds a part, and the same tensors whole. One that is not dealt out is its own whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed.tensor import DTensor, distribute_tensor

if TYPE_CHECKING:
    from torch import Tensor


def whole(tensor: Tensor) -> Tensor:
    """All of it. Of a dealt tensor this is a collective: every shard asks, in the same order."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def part_like(tensor: Tensor, like: Tensor) -> Tensor:
    """This shard's part of a whole ``tensor`` that every shard has, dealt and placed as ``like``; the tensor itself where that is whole."""
    if not isinstance(like, DTensor):
        return tensor
    # Without a source rank: nobody sends what everybody has.
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
