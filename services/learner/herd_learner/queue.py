"""The unroll queue between the I/O thread and the training thread.

Messages are decoded straight into a `Block`: preallocated arrays for all unrolls of one message. The training thread
takes unrolls first-in-first-out, one by one, so that a policy-lag bound holds at the moment of consumption. A block's
memory is used again once all of its unrolls are taken. What may wait is bounded by the credit that was granted, and memory by
twice that: blocks of one size are kept for messages of that size, but never more than were once in use.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from herd.wire.layout import UnrollLayout

    Arrays = dict[str, NDArray[np.generic]]


@dataclass(slots=True)
class Block:
    """Memory for the unrolls of one message."""

    arrays: Arrays
    """[U, ...] by field, see docs/messaging.md."""
    num_unrolls: int
    num_pending: int = 0
    """Unrolls not yet released by the training thread."""


@dataclass(frozen=True, slots=True)
class QueuedUnroll:
    """One unroll in the queue."""

    block: Block
    row: int
    actor: tuple[int, int]
    """(actor_index, incarnation) that made it."""
    policy_version: tuple[int, int]
    """(lineage, learner_updates) at row 0."""
    task_id: int
    num_frames: int


def neighbours(unrolls: Sequence[QueuedUnroll]) -> Iterator[tuple[Block, int, Sequence[QueuedUnroll]]]:
    """Runs of successive unrolls that lie side by side in one block: the block, its first row and the unrolls."""
    start = 0
    while start < len(unrolls):
        block, first = unrolls[start].block, unrolls[start].row
        stop = start + 1
        while stop < len(unrolls) and unrolls[stop].block is block and unrolls[stop].row == first + stop - start:
            stop += 1
        yield block, first, unrolls[start:stop]
        start = stop


class UnrollQueue:
    """First-in-first-out; one thread puts, another takes."""

    def __init__(self, layout: UnrollLayout) -> None:
        self._layout = layout
        self._changed = threading.Condition()
        self._unrolls: deque[QueuedUnroll] = deque()
        # Longest unused first. Few: as many as messages fit the credit.
        self._free_blocks: list[Block] = []
        self._num_lent = 0
        self._most_lent = 0

    def new_block(self, num_unrolls: int) -> Block:
        """Memory for a message; allocated once per message size and number in flight."""
        with self._changed:
            self._num_lent += num_unrolls
            self._most_lent = max(self._most_lent, self._num_lent)
            for position in range(len(self._free_blocks) - 1, -1, -1):
                if self._free_blocks[position].num_unrolls == num_unrolls:
                    return self._free_blocks.pop(position)
        return Block(self._layout.allocate(num_unrolls), num_unrolls)

    def give_back(self, block: Block) -> None:
        """Return a block whose message was refused."""
        with self._changed:
            self._keep(block)

    def put(self, unrolls: list[QueuedUnroll]) -> None:
        """Append all unrolls of one block."""
        with self._changed:
            unrolls[0].block.num_pending = len(unrolls)
            self._unrolls.extend(unrolls)
            self._changed.notify()

    def take(
        self, num_unrolls: int, is_stale: Callable[[QueuedUnroll], bool], timeout: float
    ) -> tuple[list[QueuedUnroll], list[QueuedUnroll]]:
        """The next ``num_unrolls`` fresh unrolls, or none when ``timeout`` seconds pass first; and the stale ones met on the way.

        All of them must go to `release` afterwards.
        """
        deadline = time.monotonic() + timeout
        stale: list[QueuedUnroll] = []
        with self._changed:
            while True:
                if len(self._unrolls) >= num_unrolls:
                    stale.extend(unroll for unroll in self._unrolls if is_stale(unroll))
                    if stale:
                        dropped = set(map(id, stale))
                        self._unrolls = deque(unroll for unroll in self._unrolls if id(unroll) not in dropped)
                    if len(self._unrolls) >= num_unrolls:
                        return [self._unrolls.popleft() for _ in range(num_unrolls)], stale
                remaining = deadline - time.monotonic()
                if stale or remaining <= 0:
                    return [], stale
                self._changed.wait(remaining)

    def release(self, unrolls: list[QueuedUnroll]) -> None:
        """The unrolls' memory may be written again."""
        with self._changed:
            for unroll in unrolls:
                block = unroll.block
                block.num_pending -= 1
                if block.num_pending == 0:
                    self._keep(block)

    @property
    def num_allocated(self) -> int:
        """Unrolls that there is memory for, in use or free."""
        return self._num_lent + sum(block.num_unrolls for block in self._free_blocks)

    def _keep(self, block: Block) -> None:
        self._num_lent -= block.num_unrolls
        self._free_blocks.append(block)
        # Messages of ever other sizes must not pile up blocks of each.
        surplus = sum(free.num_unrolls for free in self._free_blocks) - self._most_lent
        while surplus > 0:
            surplus -= self._free_blocks.pop(0).num_unrolls

    def __len__(self) -> int:
        """Unrolls waiting."""
        return len(self._unrolls)
