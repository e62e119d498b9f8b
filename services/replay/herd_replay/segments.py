"""Memory for the records of episodes: a log of large blocks, written at one end and freed at the other.

Episodes come and go in one order, so a block is freed whole when the last of its episodes is gone: nothing fragments, and what is held
is known to the page. What was written is never written again, so a snapshot may read it from another thread.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SEGMENT_BYTES = 8 << 20
"""Of one block; a longer record gets one of its own. At most this much beyond what is live is held at each end of the log."""
RECORD_ALIGNMENT = 8
"""Tables of 64-bit numbers are read in place."""


class Segment:
    """One block. Its pages are taken from the system as they are written."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        """Of this block, of all that the log ever had."""
        self.used = 0
        """Bytes written."""
        self.num_live = 0
        """Records that are still needed."""
        self.size = size
        self._memory = mmap.mmap(-1, size)
        self.view = memoryview(self._memory)

    @property
    def resident_bytes(self) -> int:
        """Of memory: whole pages."""
        return -(-self.used // mmap.PAGESIZE) * mmap.PAGESIZE

    def append(self, parts: Sequence[bytes | memoryview]) -> int:
        """Write one record; returns where it begins. The caller has looked at the room."""
        begin = position = self.used
        for part in parts:
            self.view[position : position + len(part)] = part
            position += len(part)
        self.used = position + -position % RECORD_ALIGNMENT
        self.num_live += 1
        return begin


class SegmentLog:
    """Blocks in the order in which they were begun."""

    def __init__(self, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._segment_bytes = segment_bytes
        self._next_number = 0
        self._sealed_bytes = 0
        self._newest: Segment | None = None
        self.segments: dict[int, Segment] = {}
        """By number, the oldest first; only the last is written to."""

    @property
    def resident_bytes(self) -> int:
        """Of memory, evicted records included whose block is not free yet."""
        return self._sealed_bytes + (self._newest.resident_bytes if self._newest is not None else 0)

    def append(self, parts: Sequence[bytes | memoryview]) -> tuple[Segment, int]:
        """Write one record; returns its block and where in it the record begins."""
        size = sum(map(len, parts)) + RECORD_ALIGNMENT
        segment = self._newest
        if segment is None or segment.size - segment.used < size:
            segment = self.begin(self._next_number, max(size, self._segment_bytes))
        return segment, segment.append(parts)

    def begin(self, number: int, size: int) -> Segment:
        """Begin another block; the one before is complete."""
        if self._newest is not None:
            self._sealed_bytes += self._newest.resident_bytes
        self._newest = self.segments[number] = Segment(number, size + -size % mmap.PAGESIZE)
        self._next_number = number + 1
        self._free()
        return self._newest

    def release(self, number: int) -> None:
        """Give back one record of a block."""
        self.segments[number].num_live -= 1
        self._free()

    def _free(self) -> None:
        # The last one is written to. A block's memory goes when nobody reads it any more: an answer that is on its way may.
        while len(self.segments) > 1 and not (oldest := next(iter(self.segments.values()))).num_live:
            del self.segments[oldest.number]
            self._sealed_bytes -= oldest.resident_bytes
