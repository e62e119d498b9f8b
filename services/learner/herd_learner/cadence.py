"""Intervals of recurring work, counted from the end of the last time. The caller passes the time."""

from __future__ import annotations


class Cadence:
    """``now`` is any monotonic clock in seconds."""

    def __init__(self, interval_seconds: float, *, now: float) -> None:
        """The work is first due an interval after ``now``."""
        self._interval_seconds = interval_seconds
        self._due_at = now + interval_seconds

    def is_due(self, now: float) -> bool:
        """Return whether the work is due."""
        return now >= self._due_at

    def done(self, now: float) -> None:
        """Record that the work was done; it is next due an interval after ``now``."""
        self._due_at = now + self._interval_seconds
