"""The numbers of a point of metrics.jsonl under names that viewers group by: ``run/entropy``, ``tasks/pong/episodes``. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STEP = "env_frames"
"""What all curves are drawn over."""
_RUN = "run"
"""Group of the numbers that stand at the top of a point."""


def scalars(point: Mapping[str, Any]) -> dict[str, float]:
    """Every finite number of a point by its path; lists count from 1. What is null, a word or a truth value is left out."""
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
