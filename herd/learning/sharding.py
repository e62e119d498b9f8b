"""Gathers tensors of which each shard holds a part, and shards them again. Tensors that are not sharded are returned unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch.distributed.tensor import DTensor, distribute_tensor

if TYPE_CHECKING:
    from torch import Tensor


class Shards(Protocol):
    """The processes that share each batch, seen from one of them."""

    @property
    def size(self) -> int:
        """Number of shards."""

    def add_up(self, tensor: Tensor) -> Tensor:
        """Sum ``tensor`` over the shards, in place."""

    def rows(self, mine: Tensor) -> Tensor:
        """Return [N, K]: each shard's [K], in the order of their ranks."""


class OneShard:
    """A single learner; every operation is the identity."""

    size = 1

    def add_up(self, tensor: Tensor) -> Tensor:
        """See `Shards`."""
        return tensor

    def rows(self, mine: Tensor) -> Tensor:
        """See `Shards`."""
        return mine.unsqueeze(0)


def gather(tensor: Tensor) -> Tensor:
    """Return the whole tensor. For a sharded tensor this is a collective: all shards must call it in the same order."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Return this shard's part of a whole ``tensor``, sharded and placed like ``like``; the tensor itself if ``like`` is not sharded."""
    if not isinstance(like, DTensor):
        return tensor
    # No source rank: every shard has the tensor, so nothing is sent.
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
