"""Options of commands, beside settings: what is wrong with one is said in one line, as settings do."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, NoReturn

from herd.config.layers import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line instead of printing the usage before it; no abbreviated options."""

    def __init__(self, *, prog: str, description: str, usage: str | None = None) -> None:
        super().__init__(
            prog=prog, description=description, usage=usage, allow_abbrev=False, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )

    def error(self, message: str) -> NoReturn:
        """Raise SettingsError."""
        raise SettingsError(f"{message} (see {self.prog} --help)")


def number(
    name: str = "number above 0", fits: Callable[[float], bool] = lambda value: 0 < value < math.inf, *, kind: type[float] = float
) -> Callable[[str], float]:
    """Parser of a number of which ``fits`` holds; ``name`` is what an error message calls it."""

    def parse(text: str) -> float:
        value = kind(text)
        if not fits(value):
            raise ValueError
        return value

    parse.__name__ = name  # argparse asks for it
    return parse


POSITIVE = number()
POSITIVE_WHOLE = number("whole number above 0", kind=int)
