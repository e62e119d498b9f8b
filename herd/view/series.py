"""Bounded series of numbers: the rate of a counter, the returns of a task over a run, and their sparkline. No I/O."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from herd.run.journals import number_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RATE_WINDOW_SECONDS = 10.0
"""Window in seconds, long enough to smooth over single updates of the deep network (about one per second on two cores)."""
_BLOCKS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH = 16
"""Width in characters, so that a row of the task table fits into 80 columns."""
_MAX_VALUES = 8 * SPARKLINE_WIDTH
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
    """Mean returns in order of time. When there are too many, neighbours are averaged, so that the record covers the whole run."""

    first: float | None = None
    """First of the means over 100 games; None before it."""
    best: float | None = None
    """Best of the means over 100 games; None before the first."""
    _values: list[float] = field(default_factory=list)
    _per_value: int = 1
    """Number of points in each value except the last."""
    _newest: list[float] = field(default_factory=list)
    """Number of points in the incomplete value."""

    def add(self, task: Mapping[str, Any]) -> None:
        """Add the task of a point of metrics.jsonl; it is ignored if no game has finished."""
        value, episodes = number_in(task, "episode_return_mean_100"), number_in(task, "episodes")
        if value is None or episodes is None:
            return
        if episodes >= _FULL_WINDOW:
            self.first = value if self.first is None else self.first
            self.best = value if self.best is None else max(self.best, value)
        self._newest.append(value)
        if len(self._newest) == self._per_value:
            self._values.append(_mean(self._newest))
            self._newest.clear()
        if len(self._values) == _MAX_VALUES:
            self._values = [_mean(self._values[index : index + 2]) for index in range(0, _MAX_VALUES, 2)]
            self._per_value *= 2

    @property
    def values(self) -> tuple[float, ...]:
        """At most 128 values, from the beginning of the run to now."""
        return (*self._values, _mean(self._newest)) if self._newest else tuple(self._values)


def sparkline(values: Sequence[float]) -> str:
    """Return a sparkline such as ``▁▁▂▄▇█`` of the means of equal parts of ``values``; empty for fewer than two values."""
    if len(values) < 2:
        return ""
    width = min(SPARKLINE_WIDTH, len(values))
    edges = [round(part * len(values) / width) for part in range(width + 1)]
    means = [_mean(values[start:end]) for start, end in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    if high <= low:
        return _BLOCKS[0] * width
    return "".join(_BLOCKS[round((value - low) / (high - low) * (len(_BLOCKS) - 1))] for value in means)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
