"""Unrolls from the replay service that are not in a batch yet: their places in the batch, and how many more to request.

R places for replayed unrolls in a batch.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from herd.wire.replay_samples import SampledEpisode

if TYPE_CHECKING:
    from herd.wire.replay_samples import SampledUnrolls, StoredUnroll


class UnrollStock:
    """Stock for agents without a recurrent core: unrolls are drawn individually and may take any place."""

    def __init__(self, num_places: int, num_batches_ahead: int) -> None:
        self._num_places = num_places
        self._most_waiting = num_places * num_batches_ahead
        self._unrolls: deque[StoredUnroll] = deque()
        self._num_asked = 0

    def ask(self) -> int:
        """Return how many to request now: those of one batch, unless the batches ahead are already stocked or requested."""
        if len(self._unrolls) + self._num_asked > self._most_waiting:
            return 0
        self._num_asked += self._num_places
        return self._num_places

    def add(self, sample: SampledUnrolls | SampledEpisode) -> None:
        """Append sampled unrolls to the stock."""
        assert not isinstance(sample, SampledEpisode)  # as was asked for
        self._num_asked -= len(sample.unrolls)
        self._unrolls.extend(sample.unrolls)

    def next(self, place: int) -> StoredUnroll | None:  # noqa: ARG002  as `EpisodeStock`
        """Return the unroll for a place of the current batch; None if there is none yet."""
        return self._unrolls.popleft() if self._unrolls else None

    def drop(self, place: int) -> None:
        """Note that the unroll from `next` cannot be read."""

    def begin_new_episodes(self) -> None:
        """Do nothing: no unroll depends on the one before it."""


class EpisodeStock:
    """Stock for recurrent agents: each place is a slot that works through one episode from its first step, one unroll per batch.

    All slots begin together. Slot i of R therefore ends its first episode after (i + 1) / R of its unrolls. Otherwise, if episodes are
    equally long, all rows of a batch would forever be of the same part of an episode, and all episodes would be fetched at once.
    """

    def __init__(self, num_places: int, num_batches_ahead: int) -> None:
        self._num_batches_ahead = num_batches_ahead
        self._slots: list[deque[StoredUnroll]] = [deque() for _ in range(num_places)]
        """The rest of each slot's episode."""
        self._episodes: deque[SampledEpisode] = deque()
        self._num_asked = 0
        self.begin_new_episodes()

    def ask(self) -> int:
        """Return how many episodes to request now: one for each slot that ends its episode within the batches ahead."""
        ending = sum(len(slot) <= self._num_batches_ahead for slot in self._slots)
        count = max(0, ending - len(self._episodes) - self._num_asked)
        self._num_asked += count
        return count

    def add(self, sample: SampledUnrolls | SampledEpisode) -> None:
        """Keep an episode for the next slot that ends its episode."""
        assert isinstance(sample, SampledEpisode)  # as was asked for
        self._num_asked -= 1
        self._episodes.append(sample)

    def next(self, place: int) -> StoredUnroll | None:
        """Return the slot's next unroll, from the next episode if its own is over; None if there is none yet."""
        slot = self._slots[place]
        if not slot:
            if not self._episodes:
                return None
            slices = self._episodes.popleft().slices()
            if place in self._unused:
                self._unused.remove(place)
                slices = slices[: math.ceil(len(slices) * (place + 1) / len(self._slots))]
            slot.extend(slices)
        return slot.popleft()

    def drop(self, place: int) -> None:
        """Drop the slot's episode, because it cannot be read: its recurrent state ends here."""
        self._slots[place].clear()

    def begin_new_episodes(self) -> None:
        """Drop the episodes of all slots."""
        for slot in self._slots:
            slot.clear()
        self._unused = set(range(len(self._slots)))
