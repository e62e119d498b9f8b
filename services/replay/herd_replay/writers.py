"""Which message of each writer came last, so that one that is sent again is not taken again. No I/O; bounded.

A writer numbers its messages 1, 2, ... and sends those that are not acknowledged again, in order.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_WRITERS = 65_536
"""10 MB; each learner shard is one, and again after each of its restarts."""

Novelty = Literal["new", "repeated", "early"]
"""``early``: one before it is missing, and will be sent again."""


class Writers:
    """The last message of each writer; beyond ``max_writers`` the one silent longest is forgotten."""

    def __init__(self, max_writers: int = MAX_WRITERS) -> None:
        self._max_writers = max_writers
        self._last: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        """Writers remembered."""
        return len(self._last)

    def judge(self, writer: int, sequence: int, oldest_sequence: int) -> Novelty:
        """Say what a message is; a new one is noted as taken.

        What a writer cannot send any more (``oldest_sequence``) was taken by this process before it lost what came since its snapshot.
        """
        last = max(self._last.get(writer, 0), oldest_sequence - 1)
        if sequence <= last:
            novelty: Novelty = "repeated"
        elif sequence > last + 1:
            novelty = "early"
        else:
            novelty, last = "new", sequence
        self.note(writer, last)
        return novelty

    def note(self, writer: int, sequence: int) -> None:
        """Set a writer's last message."""
        self._last[writer] = sequence
        self._last.move_to_end(writer)
        if len(self._last) > self._max_writers:
            self._last.popitem(last=False)

    def last(self, writer: int) -> int:
        """Messages up to this one are taken; 0 of a writer that is not known."""
        return self._last.get(writer, 0)

    def all(self) -> Iterator[tuple[int, int]]:
        """Give every writer and its last message, the one silent longest first."""
        yield from self._last.items()
