"""What a view remembers between readings: rates of counters, and of tasks the first and best return and the length of games. No I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from herd.run.journals import number_in

if TYPE_CHECKING:
    from collections.abc import Mapping

RATE_WINDOW_SECONDS = 10.0
"""Window in seconds, long enough to smooth over single updates of the deep network (about one per second on two cores)."""
_NEWEST_SHARE = 0.1
"""Share of a task's frames over which games are compared with earlier ones."""
_FEW_GAMES = 10
"""Windows with fewer games do not say how long games last."""
_MANY_TIMES_RARER = 10.0
"""Points per frame must have become so many times rarer for a long game to be one that waits."""
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


class GameLength:
    """How long a task's games last, to notice an agent that makes the game wait instead of losing points.

    Longer games alone are usual, because agents learn to survive. An agent that waits also scores almost nothing per frame.
    """

    def __init__(self) -> None:
        self._points: deque[tuple[float, float, float]] = deque()
        self._shortest: float | None = None
        self._highest_rate = 0.0
        self.times_longer = 1.0
        """How many times as long as the shortest ones the newest games last; 1 unless they score almost nothing."""

    def add(self, task: Mapping[str, Any]) -> None:
        """Add the task of a point of metrics.jsonl; its first hundred games say nothing yet."""
        frames, games, points = (number_in(task, name) for name in ("env_frames", "episodes", "episode_return_sum"))
        if frames is None or games is None or points is None or (self._points and frames <= self._points[-1][0]):
            return
        self._points.append((frames, games, points))
        while len(self._points) > 2 and self._points[1][0] <= (1.0 - _NEWEST_SHARE) * frames:
            self._points.popleft()
        self.times_longer = 1.0
        frames_before, games_before, points_before = self._points[0]
        if games < _FULL_WINDOW or frames == frames_before:
            return
        ended = games - games_before
        length = (frames - frames_before) / max(ended, 1.0)
        rate = abs(points - points_before) / (frames - frames_before)
        if ended >= _FEW_GAMES:
            self._shortest = length if self._shortest is None else min(self._shortest, length)
            self._highest_rate = max(self._highest_rate, rate)
        if self._shortest is not None and _MANY_TIMES_RARER * rate < self._highest_rate:
            self.times_longer = length / self._shortest
