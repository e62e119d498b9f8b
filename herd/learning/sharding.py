"""Tensors of which each shard holds a part: gathered whole, and dealt out again. One that is not dealt out is its own whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch.distributed.tensor import DTensor, distribute_tensor

if TYPE_CHECKING:
    from torch import Tensor


class Shards(Protocol):
    """The processes that share each batch, seen from one of them."""

    @property
    def size(self) -> int:
        """How many there are."""

    def add_up(self, tensor: Tensor) -> Tensor:
        """Sum over the shards, in place."""

    def rows(self, mine: Tensor) -> Tensor:
        """[N, K]: each shard's [K], in the order of their ranks."""


class OneShard:
    """A learner alone: each of these is the identity."""

    size = 1

    def add_up(self, tensor: Tensor) -> Tensor:
        """See `Shards`."""
        return tensor

    def rows(self, mine: Tensor) -> Tensor:
        """See `Shards`."""
        return mine.unsqueeze(0)


def gather(tensor: Tensor) -> Tensor:
    """All of it. Of a dealt tensor this is a collective: every shard asks, in the same order."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """This shard's part of a whole ``tensor`` that every shard has, dealt and placed as ``like``; the tensor itself where that is whole."""
    if not isinstance(like, DTensor):
        return tensor
    # Without a source rank: nobody sends what everybody has.
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
