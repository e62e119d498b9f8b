"""The error for everything that a user wrote wrongly: one line that names what was probably meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class SettingsError(ValueError):
    """Settings that cannot be used. The message is one line for the user who wrote them."""


def close_match(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?``, or an empty text if no known word is close."""
    matches = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
    return f"; did you mean {matches[0]}?" if matches else ""
