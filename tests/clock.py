"""A clock that the test turns."""

from __future__ import annotations


class Clock:
    """Called as ``time.monotonic``: ``now``, in seconds."""

    now = 100.0

    def __call__(self) -> float:
        return self.now
