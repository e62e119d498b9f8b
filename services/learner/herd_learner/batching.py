"""Puts batches together from queued and replayed unrolls, in memory that the device copies from."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from herd.config.replay import UniformReplay
from herd.learning.batch import Slab, trained_fields
from herd_learner.replay import UnrollReplay
from herd_learner.shards.slices import share

if TYPE_CHECKING:
    import torch

    from herd.config.settings import RunSettings
    from herd.wire.layout import UnrollLayout
    from herd_learner.queue import QueuedUnroll


class BatchAssembler:
    """Owns the memory of batches, or of a shard's part of each; page-locked when the device is a GPU."""

    def __init__(self, layout: UnrollLayout, settings: RunSettings, device: torch.device, *, rank: int = 0, num_slots: int = 1) -> None:
        """``rank``: of the shard whose part of each batch this is. ``num_slots``: batches that are in memory at once."""
        num_shards = settings.learner.shards
        self._fields = trained_fields(layout)
        self._num_replayed = share(settings.num_replayed_unrolls, rank, num_shards)
        num_unrolls = share(settings.num_online_unrolls, rank, num_shards) + self._num_replayed
        self._slots = deque(Slab(layout, num_unrolls, pinned=device.type == "cuda") for _ in range(num_slots))
        for slab in self._slots:
            slab.arrays["agent_ids"][...] = settings.learner.agent
            slab.arrays["is_replayed"][num_unrolls - self._num_replayed :] = True
        self.replay: UnrollReplay | None = None
        self._minimum_fill = 0
        if isinstance(settings.replay, UniformReplay):
            capacity = share(settings.replay.capacity_unrolls, rank, num_shards)
            self.replay = UnrollReplay(self._fields, capacity, settings.seed + rank)
            self._minimum_fill = max(1, share(settings.replay.minimum_fill_unrolls, rank, num_shards))

    def assemble(self, online: list[QueuedUnroll]) -> Slab:
        """Online unrolls first, then replayed ones; the result is overwritten by the next call but ``num_slots`` - 1.

        Until replay holds its minimum, the batch is of the online unrolls alone. They enter replay last: no batch draws its own.
        """
        self._slots.rotate(-1)
        slab = self._slots[0]
        arrays = slab.arrays
        start = 0
        while start < len(online):
            # Neighbours in a block are copied at once.
            block, first = online[start].block, online[start].row
            stop = start + 1
            while stop < len(online) and online[stop].block is block and online[stop].row == first + stop - start:
                stop += 1
            for field in self._fields:
                arrays[field.name][start:stop] = block.arrays[field.name][first : first + stop - start]
            start = stop
        num_held = len(online)
        if self.replay is not None:
            if len(self.replay) >= self._minimum_fill:
                self.replay.sample_into(arrays, len(online), self._num_replayed)
                num_held += self._num_replayed
            self.replay.insert(arrays, len(online))
        slab.hold(num_held)
        return slab
