"""What a plan is written on: quantities with their formulas, remarks, and kinds of pods."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeVar

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Line:
    """One quantity."""

    section: str
    quantity: str
    formula: str
    """In numbers; empty for what is given."""
    value: float
    unit: str


@dataclass(slots=True)
class Sheet:
    """Collects lines as they are worked out, and what the reader must know beside them."""

    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _section: str = ""

    def section(self, name: str) -> None:
        """What the next lines are about."""
        self._section = name

    def line(self, quantity: str, formula: str, value: Number, unit: str = "") -> Number:
        """Add a line; returns its value."""
        self.lines.append(Line(self._section, quantity, formula, value, unit))
        return value

    def note(self, text: str) -> None:
        """Add a remark."""
        self.notes.append(text)


def rounded_up(needed: float) -> int:
    """Whole things for a need, at least one; what is over by rounding alone does not count."""
    return max(1, math.ceil(needed - 1e-9))


def shown(value: float) -> str:
    """A number for people: whole from 100 on, else three digits; powers of ten where it would fill the line."""
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def shown_bytes(value: float) -> str:
    """Bytes for people, in powers of a thousand, such as ``170 kB`` or ``95 TB``."""
    for size, unit in ((1e18, "EB"), (1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{shown(value / size)} {unit}"
    return f"{value:.0f} B"


@dataclass(frozen=True, slots=True)
class Pod:
    """One kind; everything of each."""

    role: str
    pods: int
    cores: float
    gpus: int
    memory_bytes: float
    bytes_in: float
    """Per second."""
    bytes_out: float
    """Per second."""
