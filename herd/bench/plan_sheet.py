"""The sheet of a plan: quantities with their formulas, notes, and kinds of pods."""

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
    """The formula in numbers; empty for given quantities."""
    value: float
    unit: str


@dataclass(slots=True)
class Sheet:
    """Collects lines in the order of the calculation, and notes for the reader."""

    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _section: str = ""

    def section(self, name: str) -> None:
        """Begin a section."""
        self._section = name

    def line(self, quantity: str, formula: str, value: Number, unit: str = "") -> Number:
        """Add a line; return its value."""
        self.lines.append(Line(self._section, quantity, formula, value, unit))
        return value

    def note(self, text: str) -> None:
        """Add a note."""
        self.notes.append(text)


def rounded_up(needed: float) -> int:
    """Return the smallest whole number that covers ``needed``, at least 1. An excess within rounding error is ignored."""
    return max(1, math.ceil(needed - 1e-9))


def shown(value: float) -> str:
    """Format a number: whole from 100 on, otherwise three digits; powers of ten for very large ones."""
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def shown_bytes(value: float) -> str:
    """Format bytes in powers of a thousand, such as ``170 kB`` or ``95 TB``."""
    for size, unit in ((1e18, "EB"), (1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{shown(value / size)} {unit}"
    return f"{value:.0f} B"


@dataclass(frozen=True, slots=True)
class Pod:
    """One kind of pod; all figures are per pod."""

    role: str
    pods: int
    cores: float
    gpus: int
    memory_bytes: float
    bytes_in: float
    """Bytes received per second."""
    bytes_out: float
    """Bytes sent per second."""
