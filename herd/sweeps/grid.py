"""The runs of a sweep: every combination of the values of settings, once for each seed."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from herd.config.errors import SettingsError, close_match
from herd.config.loading.keys import find_key, setting_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Combination = dict[str, str]
"""Text of each swept setting, by dotted key."""
_LONGEST = 120
"""Largest length of a directory's name; most file systems allow 255 bytes, and suffixes are added."""
_NUMBER = r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})")
_OPENING, _CLOSING = "[{(", "]})"
_SEPARATE = frozenset({"name", "seed", "run_dir", "resume", "agents", "sweep"})
"""Settings that cannot be swept, because they identify runs or make several agents."""


class Range(NamedTuple):
    """Numbers that a search may choose, both ends included."""

    low: float
    high: float
    is_whole: bool
    """Whether both ends are written as integers; then only integers are chosen."""


def parse_range(key: str, text: str) -> Range | None:
    """Parse ``1e-4..1e-2``; None if the text is no range. Raises SettingsError if the range is empty."""
    if (found := _RANGE.fullmatch(text)) is None:
        return None
    low, high = map(float, found.groups())
    if low >= high:
        raise SettingsError(f"--set {key}={text}: the first number of a range should be the lower one")
    return Range(low, high, all(end.lstrip("+-").replace("_", "").isdecimal() for end in found.groups()))


def parse_values(text: str) -> tuple[str, list[str]]:
    """Parse ``key=a,b`` into the setting and the texts of its values. Commas inside brackets or quotes do not separate values.

    Raises:
        SettingsError: the setting is unknown, or a value is missing or repeated.

    """
    key, equals, values = text.partition("=")
    if not equals:
        raise SettingsError(f"--set {text}: should be section.key=value,value")
    if find_key(tuple(key.split("."))) is None:
        raise SettingsError(f"--set {key}: no such setting{close_match(key, [setting.dotted for setting in setting_keys()])}")
    if key in _SEPARATE:
        raise SettingsError(f"--set {key}: cannot be swept; seeds are --seeds and --first_seed")
    found = _split(values)
    if not all(found):
        raise SettingsError(f"--set {text}: a value is empty; should be section.key=value,value")
    if repeated := [value for value, count in Counter(found).items() if count > 1]:
        raise SettingsError(f"--set {key}: {repeated[0]} is given twice")
    return key, found


def combinations(values: Mapping[str, Sequence[str]]) -> list[Combination]:
    """Return all combinations, with the last key varying fastest; one empty combination if nothing is swept."""
    return [dict(zip(values, texts, strict=True)) for texts in itertools.product(*values.values())]


def label(combination: Mapping[str, str]) -> str:
    """Return a label such as ``learning_rate=3e-4, value_scaling.kind=popart``: ambiguous names of settings include the section."""
    short = Counter(setting.dotted.rpartition(".")[2] for setting in setting_keys())
    names = {key: tail if short[tail := key.rpartition(".")[2]] == 1 else key for key in combination}
    return ", ".join(f"{names[key]}={text}" for key, text in combination.items()) or "as it is"


def directory_name(combination: Mapping[str, str]) -> str:
    """Return a unique folder name for the runs of a combination."""
    written = label(combination) if combination else "as-it-is"
    plain = re.sub(r"[^A-Za-z0-9._=+-]+", "-", written.replace(", ", ",").replace(",", "_"))
    if plain == written.replace(", ", "_") and len(plain) <= _LONGEST:
        return plain
    digest = hashlib.sha256(written.encode()).hexdigest()[:8]
    return f"{plain[:_LONGEST]}-{digest}"


def _split(text: str) -> list[str]:
    parts, depth, quote, start = [], 0, "", 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
        else:
            depth += (character in _OPENING) - (character in _CLOSING)
    return [part.strip() for part in [*parts, text[start:]]]
