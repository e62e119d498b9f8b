"""Memory for the records of episodes: a log of large blocks, written at one end and freed at the other.

Episodes are removed in the order of their insertion, so a block is freed when its last episode is removed. Memory does not fragment, and
its size is known exactly. Written memory never changes, so another thread may read it for a snapshot.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.transport import Frame

SEGMENT_BYTES = 8 << 20
"""Size of a block; a longer record gets its own block. At each end of the log, at most this much memory is unused."""


class Segment:
    """One block. The system provides its pages when they are first written."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        """Number of this block, counted over all blocks of the log's life."""
        self.used = 0
        """Number of bytes written."""
        self.num_live = 0
        """Number of records that are still needed."""
        self.size = size
        self._memory = mmap.mmap(-1, size)
        self.view = memoryview(self._memory)

    @property
    def resident_bytes(self) -> int:
        """Memory in use, in whole pages."""
        return -(-self.used // mmap.PAGESIZE) * mmap.PAGESIZE

    def append(self, parts: Sequence[Frame]) -> int:
        """Write one record; returns its offset. The caller has checked that there is room."""
        begin = position = self.used
        for part in parts:
            self.view[position : position + len(part)] = part
            position += len(part)
        self.used = position
        self.num_live += 1
        return begin


class SegmentLog:
    """Blocks in the order of their creation."""

    def __init__(self, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._segment_bytes = segment_bytes
        self._next_number = 0
        self._sealed_bytes = 0
        self._newest: Segment | None = None
        self.segments: dict[int, Segment] = {}
        """Blocks by number, the oldest first; only the last one is written to."""

    @property
    def resident_bytes(self) -> int:
        """Memory in use, including evicted records in blocks that are not free yet."""
        return self._sealed_bytes + (self._newest.resident_bytes if self._newest is not None else 0)

    def append(self, parts: Sequence[Frame]) -> tuple[Segment, int]:
        """Write one record; returns its block and its offset."""
        size = sum(map(len, parts))
        segment = self._newest
        if segment is None or segment.size - segment.used < size:
            segment = self.begin(self._next_number, max(size, self._segment_bytes))
        return segment, segment.append(parts)

    def begin(self, number: int, size: int) -> Segment:
        """Start a new block; the previous one is complete."""
        if self._newest is not None:
            self._sealed_bytes += self._newest.resident_bytes
        self._newest = self.segments[number] = Segment(number, size + -size % mmap.PAGESIZE)
        self._next_number = number + 1
        self._free()
        return self._newest

    def release(self, number: int) -> None:
        """Release one record of a block."""
        self.segments[number].num_live -= 1
        self._free()

    def _free(self) -> None:
        # The last block is still written to. The memory of a block is freed when no answer under way reads it any more.
        while len(self.segments) > 1 and not (oldest := next(iter(self.segments.values()))).num_live:
            del self.segments[oldest.number]
            self._sealed_bytes -= oldest.resident_bytes
