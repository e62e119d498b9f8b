"""One source of settings as a nested mapping that remembers where each value came from."""

from __future__ import annotations

import difflib
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from herd.config.foreign_files import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from herd.config.keys import SettingKey

TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
FALSE_WORDS = frozenset({"false", "no", "off", "0"})
_NULL_WORD = "null"
_INTEGER_IN_SCIENTIFIC_NOTATION = re.compile(r"\d+(\.\d+)?[eE]\+?\d+")


class SettingsError(ValueError):
    """Settings that cannot be used. The message is one line for the user who wrote them."""


@dataclass(slots=True)
class Layer:
    """The values from one source."""

    values: dict[str, Any] = field(default_factory=dict)
    """The values, nested by section."""
    origins: dict[tuple[str, ...], str] = field(default_factory=dict)
    """A description of where each leaf came from, by path."""

    def set(self, path: tuple[str, ...], value: object, origin: str) -> None:
        """Set a leaf, creating its sections."""
        section = self.values
        for name in path[:-1]:
            section = section.setdefault(name, {})
        section[path[-1]] = value
        self.origins[path] = origin

    def forget(self, section: str) -> None:
        """Drop all values of a section."""
        self.values.pop(section, None)
        self.origins = {path: origin for path, origin in self.origins.items() if path[0] != section}


def parse_text(key: SettingKey, texts: Sequence[str]) -> object:
    """Read a value from the words of a command line or of the environment.

    ``null`` is None where the setting allows it. A list is JSON (``["pong"]``), comma-separated, or several words; a mapping is JSON.
    Anything else stays text, which validation converts or refuses.
    """
    if "list" in key.kinds:
        return [item for text in texts for item in _list_items(text)]
    text = texts[-1]
    if text.lower() == _NULL_WORD and "null" in key.kinds:
        return None
    if "mapping" in key.kinds:
        with suppress(ValueError):
            return parse_json(text)
    return plain_integer(key, text)


def plain_integer(key: SettingKey, value: object) -> object:
    """``"2e6"`` as 2000000 for an integer setting (YAML and the command line give text); everything else unchanged."""
    if "integer" in key.kinds and isinstance(value, str) and _INTEGER_IN_SCIENTIFIC_NOTATION.fullmatch(value.strip()):
        number = float(value)
        return int(number) if number.is_integer() else value
    return value


def close_match(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?``, or an empty text if no known word is close."""
    matches = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
    return f"; did you mean {matches[0]}?" if matches else ""


def close_setting(dotted: str, known: Iterable[str], *, prefix: str = "") -> str:
    """As `close_match`, for a dotted key whose section may be missing or wrong. ``prefix`` is put before the suggestion."""
    known = list(known)
    matches = difflib.get_close_matches(dotted, known, n=1, cutoff=0.75)
    matches = matches or [name for name in known if name.rpartition(".")[2] == dotted.rpartition(".")[2]][:1]
    return f"; did you mean {prefix}{matches[0]}?" if matches else ""


def _list_items(text: str) -> list[Any]:
    text = text.strip()
    if text.startswith("["):
        try:
            items = parse_json(text)
        except ValueError:
            return [text]
        return list(items) if isinstance(items, list) else [text]
    return [item.strip() for item in text.split(",")] if text else []
