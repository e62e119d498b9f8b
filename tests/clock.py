"""A clock that a test sets by hand."""

from __future__ import annotations


class Clock:
    """Stands in for ``time.monotonic``; calls return ``now``, in seconds."""

    now = 100.0

    def __call__(self) -> float:
        return self.now
