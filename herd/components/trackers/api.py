"""Names the numbers of a point of metrics.jsonl so that viewers group them: ``run/entropy``, ``tasks/pong/episodes``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STEP = "env_frames"
"""Horizontal axis of all curves."""
_RUN = "run"
"""Group of the numbers at the top level of a point."""


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
