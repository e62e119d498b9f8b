"""The collective operations of learner shards: agree on every turn, sum, gather. With one shard, each is the identity.

Collectives use gloo for tensors on the CPU and NCCL for tensors on a GPU. Everything except numbers is sent as JSON; nothing is pickled.
"""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from herd_learner.group.heartbeat import Heartbeat, end_process
from herd_learner.group.rendezvous import Membership, Place, connect_again, join, place_of
from herd_learner.group.turns import Turn, combine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

COLLECTIVE_SECONDS = 1800.0
"""Longest wait inside a collective, for example for a slow disk under a checkpoint, or a compiler at the first update. A dead shard does
not cause it, because `Heartbeat` ends it in seconds."""

LEAVE_SECONDS = 60.0
"""Longest wait for the other shards at the end."""

_left: list[dist.ProcessGroup | None] = []
"""A reference to the left group. DistributedDataParallel also holds it and drops it later with the interpreter's lock held. If that were
the last reference, destroying the group would wait for threads that wait for the lock."""

_PEER_IS_GONE = ("closed by peer", "reset by peer", "Broken pipe", "remote process exited")
"""Parts of the messages of gloo and NCCL when a process at the other end of a connection has ended."""


def share(total: int, rank: int, num_shards: int) -> int:
    """Return this shard's part of ``total`` unrolls: 32 over 3 shards is 11 + 11 + 10."""
    return total // num_shards + (rank < total % num_shards)


class ShardGroup:
    """The group, from the view of one shard."""

    def __init__(self, place: Place, heartbeat: Heartbeat | None = None) -> None:
        self.rank = place.rank
        self.size = place.size
        self._heartbeat = heartbeat

    @property
    def is_first(self) -> bool:
        """Whether this is shard 0, which writes the run's files."""
        return self.rank == 0

    def share(self, total: int) -> int:
        """Return this shard's part of a number of unrolls."""
        return share(total, self.rank, self.size)

    def agree(self, turn: Turn) -> Turn:
        """Return what all shards agree on, see `combine`."""
        if self.size == 1:
            return turn
        return combine([Turn(*row) for row in self.all_gather(torch.tensor(turn, dtype=torch.int64)).tolist()])

    def all_gather(self, mine: Tensor) -> Tensor:
        """Return each shard's [K] as [N, K], ordered by rank."""
        rows = torch.empty(self.size, len(mine), dtype=mine.dtype, device=mine.device)
        # Not all_gather_single, which torch 2.11 lacks, nor its old name, which newer releases warn about.
        dist.all_gather(list(rows), mine)
        return rows

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        """Sum over the shards, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all shards, sent as JSON, ordered by rank."""
        if self.size == 1:
            return [value]
        mine = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        lengths = self.all_gather(torch.tensor([len(mine)]))[:, 0].tolist()
        rows = self.all_gather(torch.nn.functional.pad(mine, (0, max(lengths) - len(mine))))
        return [json.loads(row[:length].numpy().tobytes()) for row, length in zip(rows, lengths, strict=True)]

    def broadcast_object(self, value: Any) -> Any:
        """Return shard 0's value, sent as JSON."""
        return self.gather(value if self.is_first else None)[0]

    def broadcast(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return shard 0's tensors on the CPU; the others pass none."""
        if self.size == 1:
            return dict(tensors)
        described = {name: [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for name, tensor in tensors.items()}
        received = {}
        for name, (dtype, shape) in self.broadcast_object(described).items():
            tensor = tensors[name].contiguous() if self.is_first else torch.empty(shape, dtype=getattr(torch, dtype))
            dist.broadcast(tensor, 0)
            received[name] = tensor
        return received

    def end_if_broken(self, error: Exception) -> None:
        """Handle an error that may come from a collective: end this process if a shard is lost, otherwise return."""
        if self._heartbeat is None:
            return
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        if any(word in reason for word in _PEER_IS_GONE):
            end_process(reason)
        # The error may not mention it. If the other shards are alive, the error is this shard's own.
        self._heartbeat.end_if_silent()

    def leave(self) -> None:
        """Wait for all shards, as the last collective operation.

        Raises:
            RuntimeError: another shard is lost, or did not arrive within `LEAVE_SECONDS`.
        """
        if self.size > 1 and dist.is_initialized():
            # A barrier with a timeout; it uses gloo on every machine.
            work = dist.all_reduce(torch.zeros(1), async_op=True)
            work.wait(timedelta(seconds=LEAVE_SECONDS))
            if self._heartbeat is not None:
                self._heartbeat.stop()
            _left.append(dist.group.WORLD)
            dist.destroy_process_group()


def join_group(
    num_shards: int,
    *,
    device: torch.device,
    settings: Mapping[str, Any],
    timeout_seconds: float,
    go_on: Callable[[], bool],
    environ: Mapping[str, str] = os.environ,
) -> ShardGroup:
    """Meet the other shards; returns at once if there are none. ``settings``: see `shared_settings`.

    Raises:
        BadInputError: see `place_of` and `join`.
        NotGatheredError: ``go_on`` became false before all shards had joined.
    """
    place = place_of(num_shards, environ)
    if place.size == 1:
        return ShardGroup(place)
    membership = join(place, go_on, settings, environ)
    backend = _backend(device, environ)
    try:
        heartbeat = _begin_heartbeat(membership, timeout_seconds)
        dist.init_process_group(
            backend,
            store=PrefixStore("group", membership.store),
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=COLLECTIVE_SECONDS),
        )
    except RuntimeError as error:  # any exception of store or group: a shard that had joined is gone
        end_process(f"{type(error).__name__}: {error}".splitlines()[0][:200])
    return ShardGroup(place, heartbeat)


def _backend(device: torch.device, environ: Mapping[str, str]) -> str:
    """NCCL for tensors on GPUs, unless processes share one, which NCCL refuses; all machines must have equally many GPUs per process."""
    if device.type != "cuda":
        return "gloo"
    processes_here = int(environ.get("LOCAL_WORLD_SIZE", "1"))
    return "cpu:gloo,cuda:nccl" if processes_here <= torch.cuda.device_count() else "cpu:gloo,cuda:gloo"


def _begin_heartbeat(membership: Membership, timeout_seconds: float) -> Heartbeat:
    place = membership.place
    heartbeat = Heartbeat(connect_again(membership), rank=place.rank, size=place.size, timeout_seconds=timeout_seconds)
    deadline = time.monotonic() + timeout_seconds
    while not membership.store.check([f"beat/{rank}" for rank in range(place.size)]):
        if time.monotonic() > deadline:
            end_process("a shard joined but did not start")
        time.sleep(0.05)
    heartbeat.start()
    return heartbeat
