"""Remembers the last message of each writer, so that a repeated message is not stored twice. No I/O; bounded.

A writer numbers its messages 1, 2, ... and repeats unacknowledged messages in order.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_WRITERS = 65_536
"""Number of writers to remember, which take 10 MB. Each start of a learner shard is a new writer."""

Novelty = Literal["new", "repeated", "early"]
"""``early``: an earlier message is missing and will be repeated."""


class Writers:
    """The last message of each writer. Beyond ``max_writers``, the writer that has been silent longest is forgotten."""

    def __init__(self, max_writers: int = MAX_WRITERS) -> None:
        self._max_writers = max_writers
        self._last: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of remembered writers."""
        return len(self._last)

    def judge(self, writer: int, sequence: int, oldest_sequence: int) -> Novelty:
        """Classify a message; a new one is recorded as stored.

        Messages before ``oldest_sequence``, which a writer can no longer repeat, were stored before this service lost the data since its
        snapshot.
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
        """Return the number of the last stored message; 0 for an unknown writer."""
        return self._last.get(writer, 0)

    def all(self) -> Iterator[tuple[int, int]]:
        """Yield every writer and its last message, the writer that has been silent longest first."""
        yield from self._last.items()
