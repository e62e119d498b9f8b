"""The queue of unrolls between the I/O thread and the training thread.

Unrolls stay in the memory of their message until they are copied into a batch. The training thread takes them
first-in-first-out, one by one, so that a policy-lag bound holds at the moment of consumption. The granted credit bounds the
number of waiting unrolls.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from herd.contract.unroll import Arrays


@dataclass(frozen=True, slots=True)
class QueuedUnroll:
    """One unroll in the queue."""

    arrays: Arrays
    """Arrays of all unrolls of its message, [U, ...] by field, see docs/messaging.md."""
    row: int
    """Its index in the arrays."""
    actor: tuple[int, int]
    """(actor_index, incarnation) that made it."""
    policy_version: tuple[int, int]
    """(lineage, learner_updates) at row 0."""
    task_id: int
    num_frames: int


def neighbours(unrolls: Sequence[QueuedUnroll]) -> Iterator[tuple[Arrays, int, Sequence[QueuedUnroll]]]:
    """Yield groups of successive unrolls that are adjacent in one message: its arrays, the first row and the unrolls."""
    start = 0
    while start < len(unrolls):
        arrays, first = unrolls[start].arrays, unrolls[start].row
        stop = start + 1
        while stop < len(unrolls) and unrolls[stop].arrays is arrays and unrolls[stop].row == first + stop - start:
            stop += 1
        yield arrays, first, unrolls[start:stop]
        start = stop


def is_stale(policy: tuple[int, int], newest: tuple[int, int], limit: int | None) -> bool:
    """Whether an unroll that ``policy`` began is too far behind ``newest``, by more than ``limit`` updates; both are (lineage, updates).

    Update numbers of an abandoned lineage refer to other weights, so their age is unknown. A version that does not exist yet cannot have
    been played.
    """
    return limit is not None and not (policy[0] == newest[0] and 0 <= newest[1] - policy[1] <= limit)


class UnrollQueue:
    """A first-in-first-out queue; one thread puts, another takes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._unrolls: deque[QueuedUnroll] = deque()

    def put(self, unrolls: list[QueuedUnroll]) -> None:
        """Append all unrolls of one message."""
        with self._changed:
            self._unrolls.extend(unrolls)
            self._changed.notify()

    def take(
        self, num_unrolls: int, is_stale: Callable[[QueuedUnroll], bool], timeout: float
    ) -> tuple[list[QueuedUnroll], list[QueuedUnroll]]:
        """Return the next ``num_unrolls`` fresh unrolls, or none after ``timeout`` seconds, and the stale unrolls skipped."""
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

    def __len__(self) -> int:
        """Return the number of waiting unrolls."""
        return len(self._unrolls)
