"""Complete episodes: first-in-first-out by agent steps, drawn uniformly. No I/O; bounded in steps and in memory.

An unroll of an episode consists of T steps that start at a multiple of T; the last unroll of an episode may be shorter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from herd.protocols.replay.records import PART, PIECE, EpisodeKey, record_of
from herd_replay.segments import SegmentLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from herd.protocols.replay.records import Episode, Table
    from herd_replay.segments import Segment

EPISODE_BYTES = 400
"""Memory of an episode in addition to its record: `Stored`, its key, and entries of the lists."""
_MIN_DEAD = 64
"""Number of evicted entries at the head of the lists before the lists are compacted."""

Evicted = Literal["capacity", "memory"]
"""The limit for which an episode was evicted: agent steps or bytes."""


class Stored(NamedTuple):
    """The location of an episode."""

    segment: int
    """Number of its block. It is not a reference, so that an evicted episode holds no memory."""
    offset: int
    num_steps: int
    inserted_steps: int
    """Number of agent steps that had been inserted in total when this episode was."""


class Record:
    """A valid record, read in place."""

    __slots__ = ("packed", "part", "pieces")

    def __init__(self, memory: memoryview) -> None:
        """``memory`` begins with the record."""
        self.part: Table = np.frombuffer(memory, PART, 1)
        begin = PART.itemsize
        self.pieces: Table = np.frombuffer(memory, PIECE, int(self.part[0]["num_pieces"]), begin)
        begin += self.pieces.nbytes
        self.packed = memory[begin : begin + int(self.pieces["num_bytes"].sum())]
        """All packed pieces, one after the other."""

    @property
    def key(self) -> EpisodeKey:
        """Return the key of the episode."""
        return EpisodeKey(*self.part[0].tolist()[: len(EpisodeKey._fields)])


class EpisodeStore:
    """The newest episodes of at most ``capacity_steps`` agent steps and about ``max_bytes`` of memory."""

    def __init__(self, *, capacity_steps: int, max_bytes: Callable[[], int], unroll_length: int, log: SegmentLog | None = None) -> None:
        """``max_bytes``: what open episodes leave at present."""
        self.num_evicted: Counter[Evicted] = Counter()
        """Episodes."""
        self.num_steps = 0
        """Number of stored agent steps."""
        self.inserted_steps = 0
        """Number of agent steps inserted in total."""
        self.inserted_episodes = 0
        """Likewise."""
        self._capacity_steps = capacity_steps
        self._max_bytes = max_bytes
        self._unroll_length = unroll_length
        self.log = log if log is not None else SegmentLog()
        self._episodes: list[Stored] = []
        self._by_key: dict[EpisodeKey, Stored] = {}
        self._unrolls_before: list[int] = []
        """For each episode, the number of unrolls of all episodes inserted before it."""
        self._num_dead = 0
        """Number of evicted entries at the head of both lists."""
        self._num_unrolls_ever = 0

    @property
    def num_episodes(self) -> int:
        """Number of stored episodes."""
        return len(self._episodes) - self._num_dead

    @property
    def num_unrolls(self) -> int:
        """Number of unrolls of the stored episodes."""
        return self._num_unrolls_ever - self._first_unroll

    @property
    def num_bytes(self) -> int:
        """Memory in use."""
        return self.log.resident_bytes + len(self._episodes) * EPISODE_BYTES

    def append(self, episode: Episode) -> None:
        """Store a complete episode; the oldest episodes are evicted if necessary. One beyond the capacity is stored alone."""
        while self.num_episodes and self.num_steps + episode.num_steps > self._capacity_steps:
            self._evict("capacity")
        segment, offset = self.log.append(record_of(episode))
        self.adopt(segment, offset, episode.key, episode.num_steps)

    def adopt(self, segment: Segment, offset: int, key: EpisodeKey, num_steps: int) -> None:
        """Store an episode whose record is already in ``segment``; the oldest episodes are evicted if necessary."""
        self.inserted_steps += num_steps
        self.inserted_episodes += 1
        self.num_steps += num_steps
        self._by_key[key] = stored = Stored(segment.number, offset, num_steps, self.inserted_steps)
        self._episodes.append(stored)
        self._unrolls_before.append(self._num_unrolls_ever)
        self._num_unrolls_ever += self._unrolls_of(num_steps)
        while self.num_episodes > 1 and self.num_steps > self._capacity_steps:
            self._evict("capacity")
        self.trim()

    def trim(self) -> None:
        """Evict the oldest episodes until the others fit into the memory that is left for them; the newest one stays."""
        while self.num_episodes > 1 and self.num_bytes > self._max_bytes():
            self._evict("memory")

    def find(self, key: EpisodeKey) -> Stored | None:
        """Return an episode; None if it is not stored, or no longer."""
        return self._by_key.get(key)

    def draw_episode(self, random: np.random.Generator) -> Stored:
        """Draw uniformly over episodes; there must be at least one."""
        return self._episodes[self._num_dead + int(random.integers(self.num_episodes))]

    def draw_unroll(self, random: np.random.Generator) -> tuple[Stored, int]:
        """Draw uniformly over the unrolls of all episodes; returns the episode and the unroll's first step. There must be at least one."""
        number = self._first_unroll + int(random.integers(self.num_unrolls))
        index = bisect_right(self._unrolls_before, number, self._num_dead) - 1
        return self._episodes[index], (number - self._unrolls_before[index]) * self._unroll_length

    def record(self, stored: Stored) -> Record:
        """Read an episode."""
        segment = self.log.segments[stored.segment]
        return Record(segment.view[stored.offset : segment.used])

    def episodes(self) -> Iterator[Stored]:
        """Yield all stored episodes, the oldest first."""
        for index in range(self._num_dead, len(self._episodes)):
            yield self._episodes[index]

    @property
    def _first_unroll(self) -> int:
        """Number of the oldest stored unroll, counted over all unrolls ever inserted."""
        return self._unrolls_before[self._num_dead] if self.num_episodes else self._num_unrolls_ever

    def _unrolls_of(self, num_steps: int) -> int:
        return -(-num_steps // self._unroll_length)

    def _evict(self, reason: Evicted) -> None:
        oldest = self._episodes[self._num_dead]
        self._num_dead += 1
        self.num_steps -= oldest.num_steps
        self.num_evicted[reason] += 1
        self._by_key.pop(self.record(oldest).key, None)
        if self._num_dead >= _MIN_DEAD and 2 * self._num_dead > len(self._episodes):
            del self._episodes[: self._num_dead], self._unrolls_before[: self._num_dead]
            self._num_dead = 0
        self.log.release(oldest.segment)
