"""The processes that share each batch, and the network over them, whose gradients are summed."""

from __future__ import annotations

from contextlib import contextmanager
from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol

from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import Tensor, nn


# Newer releases of torch warn about the name that 2.11 has.
_NO_BUFFERS: Any = {
    "forward_sync_buffers" if "forward_sync_buffers" in signature(DistributedDataParallel).parameters else "broadcast_buffers": False
}


class Shards(Protocol):
    """The processes that share each batch, seen from one of them."""

    @property
    def size(self) -> int:
        """Number of shards."""

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        """Sum ``tensor`` over the shards, in place."""

    def all_gather(self, mine: Tensor) -> Tensor:
        """Return [N, K]: each shard's [K], in the order of their ranks."""


class OneShard:
    """A single learner; every operation is the identity."""

    size = 1

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        """See `Shards`."""
        return tensor

    def all_gather(self, mine: Tensor) -> Tensor:
        """See `Shards`."""
        return mine.unsqueeze(0)


class ParallelModel:
    """Calls the network directly, or through DistributedDataParallel.

    Losses are sums over a batch, so the gradient of the global batch is the sum of its parts'. DistributedDataParallel divides by the
    number of shards; each loss is multiplied by it first. The network is the agent, optionally with an auxiliary head.
    """

    def __init__(self, network: nn.Module, shards: Shards, device: torch.device) -> None:
        """With several shards, all start with shard 0's parameters."""
        self._network = network
        self._num_shards = shards.size
        self._ddp: DistributedDataParallel | None = None
        if shards.size > 1:
            # Gradients live in the buckets that are reduced, without copies.
            self._ddp = DistributedDataParallel(
                network, device_ids=[device] if device.type == "cuda" else None, gradient_as_bucket_view=True, **_NO_BUFFERS
            )

    def __call__(self, *inputs: Any) -> Any:
        """Return the network's output."""
        return self._network(*inputs) if self._ddp is None else self._ddp(*inputs)

    @contextmanager
    def reducing(self, is_last: bool) -> Iterator[None]:
        """Enclose the forward and backward pass of one micro-batch. Gradients accumulate; the last one sums them over the shards."""
        if self._ddp is None or is_last:
            yield
            return
        with self._ddp.no_sync():
            yield

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradient to that of the batch."""
        (loss * self._num_shards).backward()  # type: ignore[no-untyped-call]
