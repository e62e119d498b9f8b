"""The network on every shard, and gradients that are the sum over the shards.

Losses are sums over a batch, so the gradient of the global batch is the sum of its parts'. DistributedDataParallel divides by the
number of shards; each loss is multiplied by it first.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import Tensor

    from herd.networks.agent import Agent
    from services.learner.shards.group import ShardGroup


class Replicas:
    """Calls the network; with several shards, through DistributedDataParallel."""

    def __init__(self, agent: Agent, group: ShardGroup, device: torch.device) -> None:
        self._agent = agent
        self._num_shards = group.size
        self._ddp: DistributedDataParallel | None = None
        if group.size > 1:
            # Gradients live in the buckets that are reduced: no copies. Parameters begin equal: shard 0's.
            self._ddp = DistributedDataParallel(
                agent, device_ids=[device] if device.type == "cuda" else None, gradient_as_bucket_view=True, forward_sync_buffers=False
            )

    def __call__(self, *inputs: Any) -> Any:
        """The network's output."""
        return self._agent(*inputs) if self._ddp is None else self._ddp(*inputs)

    @contextmanager
    def reducing(self, is_last: bool) -> Iterator[None]:
        """Around forward and backward pass of one micro-batch: gradients add up here, and over the shards with the last one."""
        if self._ddp is None or is_last:
            yield
            return
        with self._ddp.no_sync():
            yield

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradient to that of the batch."""
        (loss if self._ddp is None else loss * self._num_shards).backward()  # type: ignore[no-untyped-call]
