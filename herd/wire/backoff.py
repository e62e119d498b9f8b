"""Retry delays: doubling, with jitter, so that thousands of clients do not query a restarted server at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

FIRST_SECONDS = 1.0  # far longer than a round trip to a busy server, and short for a user who is watching
LONGEST_SECONDS = 10.0


class RetryTimer:
    """Runs from the first unanswered request; each firing doubles the delay, each answer resets it."""

    def __init__(self, clock: Callable[[], float], random: Random, *, first_seconds: float = FIRST_SECONDS) -> None:
        self._clock = clock
        self._random = random
        self._first_seconds = first_seconds
        self._delay_seconds = first_seconds
        self._deadline: float | None = None

    def start(self) -> None:
        """Note that a request was sent; an earlier request keeps its deadline."""
        if self._deadline is None:
            self._deadline = self._clock() + self._delay_seconds * self._random.uniform(0.5, 1.5)

    def restart(self) -> None:
        """Note that the request was repeated: the next delay is twice as long."""
        self._delay_seconds = min(2 * self._delay_seconds, LONGEST_SECONDS)
        self._deadline = None
        self.start()

    def reset(self) -> None:
        """Note that the answer arrived: no request is pending."""
        self._delay_seconds = self._first_seconds
        self._deadline = None

    @property
    def running(self) -> bool:
        """Whether an answer is awaited."""
        return self._deadline is not None

    @property
    def due(self) -> bool:
        """Whether it is time to repeat the request."""
        return self._deadline is not None and self._clock() >= self._deadline
