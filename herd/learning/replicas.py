"""The network over the shards, and gradients that are their sum.

Losses are sums over a batch, so the gradient of the global batch is the sum of its parts'. DistributedDataParallel divides by the
number of shards; each loss is multiplied by it first. ``fully_shard`` can be told to add.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from herd.learning.sharding import Shards


class Replicas:
    """Calls the network: directly, through DistributedDataParallel, or with its parameters sharded.

    Create it before the optimizer: ``fully_shard`` replaces the network's parameters by others, of which each shard holds a part.
    The network is the agent, optionally with an auxiliary head.
    """

    def __init__(self, network: nn.Module, shards: Shards, device: torch.device, sharding: Literal["ddp", "fully_shard"]) -> None:
        self._network = network
        self._loss_scale = 1
        self._ddp: DistributedDataParallel | None = None
        self._parted: FSDPModule | None = None
        if shards.size > 1 and sharding == "ddp":
            # Gradients live in the buckets that are reduced, without copies. All shards start with shard 0's parameters.
            self._ddp = DistributedDataParallel(
                network, device_ids=[device] if device.type == "cuda" else None, gradient_as_bucket_view=True, forward_sync_buffers=False
            )
            self._loss_scale = shards.size
        elif shards.size > 1:
            network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # it shards no other format
            # One group of all parameters: these networks are small compared with their activations, and one collective is faster than many.
            self._parted = fully_shard(network, mesh=init_device_mesh(device.type, (shards.size,)), reshard_after_forward=False)
            self._parted.set_gradient_divide_factor(1.0)
            self._parted.set_force_sum_reduction_for_comms(True)
            # No output is changed in place here.
            warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor", category=UserWarning)

    def __call__(self, *inputs: Any) -> Any:
        """Return the network's output."""
        return self._network(*inputs) if self._ddp is None else self._ddp(*inputs)

    def release(self) -> None:
        """Free the parameters gathered for forward passes without a backward pass; the optimizer does not change these."""
        if self._parted is not None:
            self._parted.reshard()

    @contextmanager
    def reducing(self, is_last: bool) -> Iterator[None]:
        """Enclose the forward and backward pass of one micro-batch. Gradients accumulate; the last one sums them over the shards."""
        if self._parted is not None:
            # Whole parameters from the first micro-batch to the last: shards may have different numbers of them, and collectives may not.
            self._parted.set_requires_gradient_sync(is_last)
            self._parted.set_reshard_after_backward(is_last)
        if self._ddp is None or is_last:
            yield
            return
        with self._ddp.no_sync():
            yield

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradient to that of the batch."""
        (loss * self._loss_scale).backward()  # type: ignore[no-untyped-call]
