"""Complete episodes: first-in-first-out by agent steps, drawn uniformly. No I/O; bounded in steps and in memory.

An unroll of an episode is T steps from a multiple of T on, counted from its first; the last one of an episode may be shorter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from herd_replay.records import Record, record_parts
from herd_replay.segments import SegmentLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from herd_replay.assembly import Episode
    from herd_replay.segments import Segment

EPISODE_BYTES = 230
"""Of memory for an episode, beside its record: what `Stored` and the list of ends hold."""
_LEAST_DEAD = 64
"""Evicted entries at the head of the lists before these are moved together."""

Evicted = Literal["capacity", "memory"]
"""Which bound an episode went for: agent steps, or bytes."""


class Stored(NamedTuple):
    """Where an episode is."""

    segment: int
    """Number of its block: an evicted episode holds no memory."""
    offset: int
    num_steps: int
    inserted_steps: int
    """Agent steps that were ever inserted, when this episode was."""


class EpisodeStore:
    """The newest episodes of at most ``capacity_steps`` agent steps and about ``max_bytes`` of memory."""

    def __init__(self, *, capacity_steps: int, max_bytes: int, unroll_length: int, log: SegmentLog | None = None) -> None:
        self.num_evicted: Counter[Evicted] = Counter()
        """Episodes."""
        self.num_steps = 0
        """Agent steps held."""
        self.inserted_steps = 0
        """Agent steps ever inserted."""
        self.inserted_episodes = 0
        """Likewise."""
        self._capacity_steps = capacity_steps
        self._max_bytes = max_bytes
        self._unroll_length = unroll_length
        self.log = log if log is not None else SegmentLog()
        self._episodes: list[Stored] = []
        self._unrolls_before: list[int] = []
        """Unrolls of all episodes that were inserted before."""
        self._num_dead = 0
        """Evicted, at the head of both lists."""
        self._num_unrolls_ever = 0

    @property
    def num_episodes(self) -> int:
        """Held."""
        return len(self._episodes) - self._num_dead

    @property
    def num_unrolls(self) -> int:
        """Unrolls of the episodes held."""
        return self._num_unrolls_ever - self._first_unroll

    @property
    def num_bytes(self) -> int:
        """Of memory."""
        return self.log.resident_bytes + len(self._episodes) * EPISODE_BYTES

    def fits(self, num_steps: int) -> bool:
        """Tell whether an episode can be kept at all."""
        return num_steps <= self._capacity_steps

    def append(self, episode: Episode) -> None:
        """Take a complete episode, of which ``fits`` is true; the oldest make room."""
        while self.num_episodes and self.num_steps + episode.num_steps > self._capacity_steps:
            self._evict("capacity")
        segment, offset = self.log.append(record_parts(episode))
        self.adopt(segment, offset, episode.num_steps)

    def adopt(self, segment: Segment, offset: int, num_steps: int) -> None:
        """Take an episode whose record is in ``segment`` already; the oldest make room."""
        self.inserted_steps += num_steps
        self.inserted_episodes += 1
        self.num_steps += num_steps
        self._episodes.append(Stored(segment.number, offset, num_steps, self.inserted_steps))
        self._unrolls_before.append(self._num_unrolls_ever)
        self._num_unrolls_ever += self._unrolls_of(num_steps)
        while self.num_episodes > 1 and self.num_steps > self._capacity_steps:
            self._evict("capacity")
        while self.num_episodes > 1 and self.num_bytes > self._max_bytes:
            self._evict("memory")

    def draw_episode(self, random: np.random.Generator) -> Stored:
        """Draw uniformly over episodes; there must be one."""
        return self._episodes[self._num_dead + int(random.integers(self.num_episodes))]

    def draw_unroll(self, random: np.random.Generator) -> tuple[Stored, int]:
        """Draw uniformly over the unrolls of all episodes; returns the episode and the unroll's first step. There must be one."""
        number = self._first_unroll + int(random.integers(self.num_unrolls))
        index = bisect_right(self._unrolls_before, number, self._num_dead) - 1
        return self._episodes[index], (number - self._unrolls_before[index]) * self._unroll_length

    def record(self, stored: Stored) -> Record:
        """Read an episode."""
        segment = self.log.segments[stored.segment]
        return Record(segment.view[stored.offset : segment.used])

    def episodes(self) -> Iterator[Stored]:
        """Give all episodes held, the oldest first."""
        for index in range(self._num_dead, len(self._episodes)):
            yield self._episodes[index]

    @property
    def _first_unroll(self) -> int:
        """Number of the oldest unroll held, counted over all that ever were."""
        return self._unrolls_before[self._num_dead] if self.num_episodes else self._num_unrolls_ever

    def _unrolls_of(self, num_steps: int) -> int:
        return -(-num_steps // self._unroll_length)

    def _evict(self, reason: Evicted) -> None:
        oldest = self._episodes[self._num_dead]
        self._num_dead += 1
        self.num_steps -= oldest.num_steps
        self.num_evicted[reason] += 1
        if self._num_dead >= _LEAST_DEAD and 2 * self._num_dead > len(self._episodes):
            del self._episodes[: self._num_dead], self._unrolls_before[: self._num_dead]
            self._num_dead = 0
        self.log.release(oldest.segment)
