"""Unrolls from the replay service that are not in a batch yet: their places in the batch, and how many more to request.

R places for replayed unrolls in a batch.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from herd.protocols.replay.samples import SampledEpisode

if TYPE_CHECKING:
    from herd.protocols.replay.samples import EpisodePart, SampledUnrolls, StoredUnroll


class UnrollStock:
    """Stock for agents without a recurrent core: unrolls are drawn individually and may take any place."""

    def __init__(self, num_places: int, num_batches_ahead: int) -> None:
        self._num_places = num_places
        self._most_waiting = num_places * num_batches_ahead
        self._unrolls: deque[StoredUnroll] = deque()
        self._num_asked = 0

    def ask(self) -> tuple[int, list[EpisodePart]]:
        """Return how many to request now: those of one batch, unless the batches ahead are already stocked or requested."""
        if len(self._unrolls) + self._num_asked > self._most_waiting:
            return 0, []
        self._num_asked += self._num_places
        return self._num_places, []

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


@dataclass(slots=True)
class _Slot:
    """A place that works through one episode, of which it has one or two parts."""

    unrolls: deque[StoredUnroll] = field(default_factory=deque)
    """What has arrived and is not in a batch yet."""
    part: EpisodePart | None = None
    """The newest part that has arrived; None if there is no episode, or no more of it."""
    stop_step: int = 0
    """Where the slot ends its episode."""
    is_asked: bool = False
    """Whether what follows ``part`` has been requested."""

    @property
    def continues(self) -> bool:
        """Whether the episode goes on after ``part``."""
        return self.part is not None and self.part.stop_step < self.stop_step

    def begin(self, part: EpisodePart, numerator: int, denominator: int) -> None:
        """Begin an episode, and end it after this share of its unrolls."""
        length = part.layout.new_steps
        num_unrolls = math.ceil(math.ceil(part.episode_steps / length) * numerator / denominator)
        self.stop_step = min(num_unrolls * length, part.episode_steps)
        self.add(part)

    def add(self, part: EpisodePart | None) -> None:
        """Add the next part; None if replay no longer has it."""
        self.part, self.is_asked = part, False
        if part is not None:
            self.unrolls.extend(unroll for unroll in part.unrolls() if unroll.first_step < self.stop_step)


class EpisodeStock:
    """Stock for recurrent agents: each place is a slot that works through one episode from its first step, one unroll per batch.

    Episodes arrive in parts, so that a slot's memory does not grow with the length of its episode.
    All slots begin together. Slot i of R therefore ends its first episode after (i + 1) / R of its unrolls. Otherwise, if episodes are
    equally long, all rows of a batch would forever be of the same part of an episode, and all episodes would be fetched at once.
    """

    def __init__(self, num_places: int, num_batches_ahead: int) -> None:
        self._num_batches_ahead = num_batches_ahead
        self._num_places = num_places
        self._begun: deque[EpisodePart] = deque()
        """First parts of the next episodes."""
        self._num_asked = 0
        self.begin_new_episodes()

    def ask(self) -> tuple[int, list[EpisodePart]]:
        """Return how many episodes to request now, and the parts of episodes whose next ones to request.

        A slot needs either when it has no more than what the batches ahead take.
        """
        short = [slot for slot in self._slots if len(slot.unrolls) <= self._num_batches_ahead]
        count = max(0, sum(not slot.continues for slot in short) - len(self._begun) - self._num_asked)
        self._num_asked += count
        parts = []
        for slot in short:
            if slot.part is not None and slot.continues and not slot.is_asked:
                slot.is_asked = True
                parts.append(slot.part)
        return count, parts

    def add(self, sample: SampledUnrolls | SampledEpisode) -> None:
        """Keep the first part of an episode for the next slot that ends its own, and another part for the slot that asked for it."""
        assert isinstance(sample, SampledEpisode)  # as was asked for
        if sample.after is not None:
            for slot in self._slots:
                if slot.part is sample.after:
                    slot.add(sample.part)
        elif sample.part is not None:
            self._num_asked -= 1
            self._begun.append(sample.part)

    def next(self, place: int) -> StoredUnroll | None:
        """Return the slot's next unroll, from the next episode if its own is over; None if there is none yet."""
        slot = self._slots[place]
        if not slot.unrolls and not slot.continues and self._begun:
            slot.begin(self._begun.popleft(), place + 1 if place in self._unused else self._num_places, self._num_places)
            self._unused.discard(place)
        return slot.unrolls.popleft() if slot.unrolls else None

    def drop(self, place: int) -> None:
        """Drop the slot's episode, because it cannot be read: its recurrent state ends here."""
        self._slots[place] = _Slot()

    def begin_new_episodes(self) -> None:
        """Drop the episodes of all slots."""
        self._slots = [_Slot() for _ in range(self._num_places)]
        self._unused = set(range(self._num_places))
