"""Assembles batches from queued and replayed unrolls, in memory that the device copies from."""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from herd.components.replay.local import LocalReplay
from herd.components.replay.shared import SharedReplay as SharedReplaySettings
from herd.protocols.unrolls.arrays import SingleUnrolls, UnrollArrays
from herd.training.batch import BatchBuffer, trained_fields
from herd_learner.batches.local import UnrollReplay
from herd_learner.batches.shared import SharedReplay
from herd_learner.group.collectives import share
from herd_learner.intake.queue import neighbours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from herd.config.run import RunSettings
    from herd.contract.unroll import Array, Arrays, UnrollLayout
    from herd.protocols.replay.client import ReplayClient
    from herd.protocols.unrolls.arrays import MessagePlan
    from herd_learner.intake.queue import QueuedUnroll


class BatchAssembler:
    """Owns the memory of batches, or of a shard's part of each; page-locked when the device is a GPU."""

    def __init__(
        self,
        layout: UnrollLayout,
        settings: RunSettings,
        device: torch.device,
        *,
        agent: int = 0,
        rank: int = 0,
        num_slots: int = 1,
        replay_client: ReplayClient | None = None,
    ) -> None:
        """``agent`` is trained, and ``rank`` is that of the shard whose part of each batch this is.

        ``num_slots`` is the number of batches in memory at once. ``replay_client`` is for ``replay.kind: shared``.
        """
        num_shards = settings.learner.shards
        self._agent = agent
        self._fields = trained_fields(layout)
        self._num_online = share(settings.num_online_unrolls, rank, num_shards)
        self._num_replayed = share(settings.num_replayed_unrolls, rank, num_shards)
        num_ahead = settings.replay.prefetch_batches if settings.replay.kind == "shared" else 0
        num_unrolls = self._num_online + self._num_replayed
        buffers = [BatchBuffer(layout, num_unrolls, pinned=device.type == "cuda") for _ in range(num_slots + num_ahead)]
        self._held: deque[BatchBuffer] = deque()
        """Buffers held by the training thread with shared replay, oldest first."""
        self._num_slots = num_slots
        self._trains_online = settings.replay.train_online
        self._slots = deque(buffers)
        self.replay: UnrollReplay | None = None
        self.shared: SharedReplay | None = None
        """The thread that fills the replayed part of the buffers, if replay is shared."""
        if isinstance(settings.replay, SharedReplaySettings) and replay_client is not None:
            self.shared = SharedReplay(
                replay_client,
                settings.replay,
                buffers,
                num_online=self._num_online,
                num_replayed=self._num_replayed,
                whole_episodes=settings.network.core.state_size() > 0,
            )
        self._minimum_fill = 0
        if isinstance(settings.replay, LocalReplay):
            capacity = share(settings.replay.capacity_unrolls, rank, num_shards)
            self.replay = UnrollReplay(self._fields, capacity, settings.seed + rank)
            self._minimum_fill = max(1, share(settings.replay.minimum_fill_unrolls, rank, num_shards))
        self.replayed_versions: list[tuple[int, int]] = []
        """(lineage, learner_updates) of the policies that began the replayed unrolls of the last batch; only those of this agent."""

    def wait_for_replayed(self) -> bool:
        """Return whether replay has unrolls for the next batch: it has reached its minimum and answers. See `SharedReplay.wait`."""
        if self.shared is not None:
            return self.shared.wait()
        return self.replay is not None and len(self.replay) >= self._minimum_fill

    def assemble(self, online: list[QueuedUnroll], *, with_replayed: bool) -> BatchBuffer:
        """Return a buffer with online unrolls, followed by replayed ones; it is overwritten after ``num_slots`` - 1 further calls.

        ``with_replayed``: `wait_for_replayed` of all shards. Online unrolls enter the ring after the draw, so that no batch draws its own.
        """
        if self.shared is not None:
            return self._assemble_shared(online, self.shared, with_replayed=with_replayed)
        self._slots.rotate(-1)
        buffer = self._slots[0]
        buffer.wait_until_copied()
        arrays = buffer.arrays
        self._write(online, buffer)
        num_replayed = 0
        if self.replay is not None:
            self.replayed_versions = []
            if with_replayed:
                num_replayed = self._num_replayed
                self.replayed_versions = self.replay.sample_into(arrays, len(online), num_replayed)
            self.replay.insert(arrays, [unroll.policy_version for unroll in online])
        buffer.set_counts(len(online), num_replayed)
        return buffer

    def _assemble_shared(self, online: list[QueuedUnroll], shared: SharedReplay, *, with_replayed: bool) -> BatchBuffer:
        if len(self._held) == self._num_slots:
            oldest = self._held.popleft()
            oldest.wait_until_copied()
            shared.give_back(oldest)
        buffer, origins = shared.take(with_replayed=with_replayed)
        self._held.append(buffer)
        self._write(online, buffer)
        if origins and not self._trains_online:
            # A batch that loses its replayed unrolls after this, because another shard has none, trains on nothing.
            buffer.arrays["row_valid"][: len(online)] = False
        buffer.set_counts(len(online), len(origins))
        self.replayed_versions = [origin.policy_version for origin in origins if origin.agent == self._agent]
        return buffer

    def _write(self, online: list[QueuedUnroll], buffer: BatchBuffer) -> None:
        arrays = buffer.arrays
        sources = list(_sources(online))
        for field in self._fields:
            np.concatenate([part for parts in sources for part in parts(field.name)], out=arrays[field.name][: len(online)])


def _sources(online: list[QueuedUnroll]) -> Iterator[Callable[[str], list[Array]]]:
    """Functions of a field's name that together give all of it, in order: of some unrolls each."""
    for plan, runs in groupby(neighbours(online), key=lambda run: _plan_of_one(run[0])):
        if plan is not None:
            yield SingleUnrolls([arrays for arrays, _, _ in runs if isinstance(arrays, UnrollArrays)]).parts
            continue
        for arrays, first, run in runs:
            yield partial(_part, arrays, slice(first, first + len(run)))


def _plan_of_one(arrays: Arrays) -> MessagePlan | None:
    """Return the plan of a message with one unroll."""
    return arrays.plan if isinstance(arrays, UnrollArrays) and arrays.plan.num_unrolls == 1 else None


def _part(arrays: Arrays, rows: slice, name: str) -> list[Array]:
    return [arrays[name][rows]]
