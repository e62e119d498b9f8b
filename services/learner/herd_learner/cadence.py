"""What a learner does every so often, counted from the end of the last time. No clock of its own: the loop passes it in."""

from __future__ import annotations


class Cadence:
    """``now`` is any monotonic clock in seconds."""

    def __init__(self, interval_seconds: float, *, now: float) -> None:
        """For the first time an interval from ``now``."""
        self._interval_seconds = interval_seconds
        self._due_at = now + interval_seconds

    def is_due(self, now: float) -> bool:
        """Whether it is time again."""
        return now >= self._due_at

    def done(self, now: float) -> None:
        """It has been done; the next time is an interval from ``now``."""
        self._due_at = now + self._interval_seconds
