"""What the user got wrong, as one line and exit code 2."""

from __future__ import annotations

import argparse
import difflib
from typing import NoReturn

EXIT_BAD_INPUT = 2


class CommandError(Exception):
    """One line for the person at the terminal."""


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line instead of printing the usage before it; no abbreviated options."""

    def __init__(self, *, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, formatter_class=argparse.ArgumentDefaultsHelpFormatter)

    def error(self, message: str) -> NoReturn:
        """Raise CommandError."""
        raise CommandError(f"{message} (see {self.prog} --help)")


def did_you_mean(word: str, known: list[str]) -> str:
    """``; did you mean X?``, or nothing."""
    matches = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {matches[0]}?" if matches else ""
