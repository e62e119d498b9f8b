"""What a view remembers between readings: the rate of a counter, and the first and best return of a task. No I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from herd.run.journals import number_in

if TYPE_CHECKING:
    from collections.abc import Mapping

RATE_WINDOW_SECONDS = 10.0
"""Window in seconds, long enough to smooth over single updates of the deep network (about one per second on two cores)."""
_FULL_WINDOW = 100
"""Number of games in a mean return. A mean of fewer games may be high by chance, so it is never the best value."""


class Rate:
    """Growth per second of a counter over the last ``window`` seconds. A restarted process's counter starts at 0 again."""

    def __init__(self, window_seconds: float = RATE_WINDOW_SECONDS) -> None:
        self._window_seconds = window_seconds
        self._points: deque[tuple[float, float]] = deque()

    def add(self, at: float, value: float) -> None:
        """Add the counter's value at a time in seconds."""
        if self._points and value < self._points[-1][1]:
            self._points.clear()
        if self._points and at <= self._points[-1][0]:
            return
        self._points.append((at, value))
        # The oldest stored point is the newest one that is at least a window old.
        while len(self._points) > 2 and at - self._points[1][0] >= self._window_seconds:
            self._points.popleft()

    @property
    def per_second(self) -> float | None:
        """Return the rate; None before two points."""
        if len(self._points) < 2:
            return None
        (first_at, first), (last_at, last) = self._points[0], self._points[-1]
        return (last - first) / (last_at - first_at)


@dataclass(slots=True)
class ReturnHistory:
    """The first and the best of a task's means over 100 games; None before there is one."""

    first: float | None = None
    best: float | None = None

    def add(self, task: Mapping[str, Any]) -> None:
        """Add the task of a point of metrics.jsonl; it is ignored while its mean is over fewer games."""
        value, episodes = number_in(task, "episode_return_mean_100"), number_in(task, "episodes")
        if value is None or episodes is None or episodes < _FULL_WINDOW:
            return
        self.first = value if self.first is None else self.first
        self.best = value if self.best is None else max(self.best, value)
