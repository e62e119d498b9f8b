"""The error for everything that a user wrote wrongly: one line that names what was probably meant."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""C0 and C1 controls, and those that change the direction of writing."""


class SettingsError(ValueError):
    """Settings that cannot be used. The message is one line for the user who wrote them."""


def printable(text: str) -> str:
    """Return ``text`` with escapes in place of the characters that control a terminal, except line feeds and tabs.

    Names of settings, files and folders may come from others, and must not move the cursor, colour or rewrite what was printed.
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def close_match(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?``, or an empty text if no known word is close."""
    matches = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
    return f"; did you mean {matches[0]}?" if matches else ""
