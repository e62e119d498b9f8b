"""The unroll queue between the I/O thread and the training thread.

Messages are decoded straight into a `Block`: preallocated arrays for all unrolls of one message. The training thread
takes unrolls first-in-first-out, one by one, so that a policy-lag bound holds at the moment of consumption. A block's
memory is used again once all of its unrolls are taken. What may wait is bounded by the credit that was granted.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

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


class UnrollQueue:
    """First-in-first-out; one thread puts, another takes."""

    def __init__(self, layout: UnrollLayout) -> None:
        self._layout = layout
        self._changed = threading.Condition()
        self._unrolls: deque[QueuedUnroll] = deque()
        self._free_blocks: dict[int, list[Block]] = defaultdict(list)

    def new_block(self, num_unrolls: int) -> Block:
        """Memory for a message; allocated once per message size and number in flight."""
        with self._changed:
            free = self._free_blocks[num_unrolls]
            if free:
                return free.pop()
        return Block(self._layout.allocate(num_unrolls), num_unrolls)

    def give_back(self, block: Block) -> None:
        """Return a block whose message was refused."""
        with self._changed:
            self._free_blocks[block.num_unrolls].append(block)

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
                    self._free_blocks[block.num_unrolls].append(block)

    def __len__(self) -> int:
        """Unrolls waiting."""
        return len(self._unrolls)
