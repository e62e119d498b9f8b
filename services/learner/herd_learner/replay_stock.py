"""What came from the replay service and is in no batch yet: which unroll goes to which place, and how many more to ask for.

R places for replayed unrolls in a batch.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from herd.wire.replay_samples import SampledEpisode

if TYPE_CHECKING:
    from herd.wire.replay_samples import SampledUnrolls, StoredUnroll


class UnrollStock:
    """For agents without a recurrent core: unrolls drawn one by one, for any place."""

    def __init__(self, num_places: int, num_batches_ahead: int) -> None:
        self._num_places = num_places
        self._most_waiting = num_places * num_batches_ahead
        self._unrolls: deque[StoredUnroll] = deque()
        self._num_asked = 0

    def ask(self) -> int:
        """How many to ask for now: a batch's, while no more than those of the batches ahead are here or asked for."""
        if len(self._unrolls) + self._num_asked > self._most_waiting:
            return 0
        self._num_asked += self._num_places
        return self._num_places

    def add(self, sample: SampledUnrolls | SampledEpisode) -> None:
        """Put what was sampled behind the others."""
        assert not isinstance(sample, SampledEpisode)  # as was asked for
        self._num_asked -= len(sample.unrolls)
        self._unrolls.extend(sample.unrolls)

    def next(self, place: int) -> StoredUnroll | None:  # noqa: ARG002  as `EpisodeStock`
        """The unroll for a place of the batch at hand; None while there is none."""
        return self._unrolls.popleft() if self._unrolls else None

    def drop(self, place: int) -> None:
        """What `next` gave cannot be read."""


class EpisodeStock:
    """For recurrent agents: each place is a slot that works through one episode from its first step, an unroll a batch."""

    def __init__(self, num_places: int, num_batches_ahead: int) -> None:
        self._num_batches_ahead = num_batches_ahead
        self._slots: list[deque[StoredUnroll]] = [deque() for _ in range(num_places)]
        """What is left of each one's episode."""
        self._episodes: deque[SampledEpisode] = deque()
        self._num_asked = 0

    def ask(self) -> int:
        """How many to ask for now: one for each slot that ends its episode within the batches ahead."""
        ending = sum(len(slot) <= self._num_batches_ahead for slot in self._slots)
        count = max(0, ending - len(self._episodes) - self._num_asked)
        self._num_asked += count
        return count

    def add(self, sample: SampledUnrolls | SampledEpisode) -> None:
        """Keep an episode for the first slot that ends its own."""
        assert isinstance(sample, SampledEpisode)  # as was asked for
        self._num_asked -= 1
        self._episodes.append(sample)

    def next(self, place: int) -> StoredUnroll | None:
        """The slot's next unroll, of the next episode where its own is over; None while there is none."""
        slot = self._slots[place]
        if not slot:
            if not self._episodes:
                return None
            slot.extend(self._episodes.popleft().slices())
        return slot.popleft()

    def drop(self, place: int) -> None:
        """The slot's episode cannot be read: what was recomputed ends here, and nothing of it may follow."""
        self._slots[place].clear()
