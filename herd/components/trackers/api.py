"""The interface of a tracker, and the names of a point's numbers for viewers: ``run/entropy``, ``tasks/pong/episodes``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

STEP = "env_frames"
"""Horizontal axis of all curves."""
_RUN = "run"
"""Group of the numbers at the top level of a point."""


class Run(NamedTuple):
    """What a tracker knows of the run."""

    directory: Path
    """Of the agent's files."""
    name: str
    config: Mapping[str, Any]
    """All settings, as in JSON."""


class Tracker(Protocol):
    """A viewer."""

    name: str

    def add(self, point: Mapping[str, Any]) -> None:
        """Write a point of metrics.jsonl; may wait, may raise."""

    def close(self) -> None:
        """Finish; may wait, may raise."""


def scalars(point: Mapping[str, Any]) -> dict[str, float]:
    """Return every finite number of a point by its path; list indices start at 1. Nulls, texts and booleans are left out."""
    found: dict[str, float] = {}
    for key, value in point.items():
        path = key if isinstance(value, dict | list) else f"{_RUN}/{key}"
        found.update(_numbers(path, value))
    return found


def _numbers(path: str, value: object) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(f"{path}/{key}", inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value, start=1):
            yield from _numbers(f"{path}/{number}", inner)
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield path, float(value)
