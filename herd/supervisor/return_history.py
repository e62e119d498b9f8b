"""How the return of a task moved over a run: a bounded record, its best value, and a line of blocks for the terminal. No I/O."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH = 16
"""Characters; a row of the task table still fits 80 columns."""
_MOST_VALUES = 8 * SPARKLINE_WIDTH
_FULL_WINDOW = 100
"""Games behind a mean return. The mean of fewer may be high by luck alone, and is never the best."""


@dataclass(slots=True)
class ReturnHistory:
    """Mean returns in order of time. When there are too many, neighbours are averaged, so that the whole run stays in view."""

    best: float | None = None
    """Of the means over 100 games; None before there is one."""
    _values: list[float] = field(default_factory=list)
    _per_value: int = 1
    """Points behind each value but the last."""
    _newest: list[float] = field(default_factory=list)
    """Points of the value that is not complete yet."""

    def add(self, task: Mapping[str, Any]) -> None:
        """Take a task of a point of metrics.jsonl; one without a finished game adds nothing."""
        value, episodes = task.get("episode_return_mean_100"), task.get("episodes")
        if not isinstance(value, int | float) or not isinstance(episodes, int):
            return
        if episodes >= _FULL_WINDOW:
            self.best = float(value) if self.best is None else max(self.best, float(value))
        self._newest.append(float(value))
        if len(self._newest) == self._per_value:
            self._values.append(_mean(self._newest))
            self._newest.clear()
        if len(self._values) == _MOST_VALUES:
            self._values = [_mean(self._values[index : index + 2]) for index in range(0, _MOST_VALUES, 2)]
            self._per_value *= 2

    @property
    def values(self) -> tuple[float, ...]:
        """At most 128, from the beginning of the run to now."""
        return (*self._values, _mean(self._newest)) if self._newest else tuple(self._values)


def sparkline(values: Sequence[float], width: int = SPARKLINE_WIDTH) -> str:
    """``▁▁▂▄▇█``: means of ``width`` equal parts of ``values``, lowest to highest; empty where there are fewer than two values."""
    if len(values) < 2:
        return ""
    width = min(width, len(values))
    edges = [round(part * len(values) / width) for part in range(width + 1)]
    means = [_mean(values[start:end]) for start, end in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    if high <= low:
        return _BLOCKS[0] * width
    return "".join(_BLOCKS[round((value - low) / (high - low) * (len(_BLOCKS) - 1))] for value in means)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
