"""Options of commands that are not settings, and the errors of commands, which are one line, as for settings."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from herd.config.addresses import is_storage_address
from herd.config.errors import SettingsError, close_match

if TYPE_CHECKING:
    from collections.abc import Callable

_INVALID = re.compile(r"argument (?P<name>\S+): invalid (?P<kind>.+) value: (?P<value>.*)", re.DOTALL)
_CHOICE = re.compile(r"argument (?P<name>\S+): invalid choice: (?P<value>.*) \(choose from (?P<choices>.*)\)", re.DOTALL)
_MISSING = re.compile(r"argument (?P<name>\S+): expected one argument")
_UNKNOWN = "unrecognized arguments: "


class CommandError(Exception):
    """An error of the user, which ends the command with exit code 2; the message is one line."""


class _Defaults(argparse.ArgumentDefaultsHelpFormatter):
    """Shows the default of an option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        has_default = action.default is not None and action.default is not False and action.default != []
        return super()._get_help_string(action) if has_default else action.help


class OneLineParser(argparse.ArgumentParser):
    """Reports errors in one line, without the usage text, and accepts no abbreviated options."""

    def __init__(self, *, prog: str, description: str, usage: str | None = None) -> None:
        super().__init__(prog=prog, description=description, usage=usage, allow_abbrev=False, formatter_class=_Defaults)

    def error(self, message: str) -> NoReturn:
        """Raise SettingsError, whose line begins with the name of the option."""
        if found := _INVALID.fullmatch(message):
            message = f"{found['name']}: should be a {found['kind']}, not {found['value']}"
        elif found := _CHOICE.fullmatch(message):
            *others, last = found["choices"].replace("'", "").split(", ")
            message = f"{found['name']}: should be {' or '.join([*([', '.join(others)] if others else []), last])}, not {found['value']}"
        elif found := _MISSING.fullmatch(message):
            message = f"{found['name']}: needs a value"
        elif message.startswith(_UNKNOWN):
            word = message.removeprefix(_UNKNOWN).split()[0]
            what = "no such option" if word.startswith("-") else "unexpected word"
            message = f"{word}: {what}{close_match(word.partition('=')[0], self._option_string_actions)}"
        raise SettingsError(f"{' '.join(message.split())} (see {self.prog} --help)")


def number(
    name: str = "number above 0", fits: Callable[[float], bool] = lambda value: 0 < value < math.inf, *, kind: type[float] = float
) -> Callable[[str], Any]:
    """Return a parser of numbers that satisfy ``fits``; error messages call such a number ``name``."""

    def parse(text: str) -> float:
        value = kind(text)
        if not fits(value):
            raise ValueError
        return value

    parse.__name__ = name  # argparse uses it in error messages
    return parse


def run_source(text: str) -> Path | str:
    """Parse the run of a command: a path, or an address in object storage."""
    return text if is_storage_address(text) else Path(text)


POSITIVE = number()
POSITIVE_WHOLE = number("whole number from 1 to 2^31", lambda value: 1 <= value <= 1 << 31, kind=int)
WHOLE = number("whole number from 0 to 2^63", lambda value: 0 <= value <= 1 << 63, kind=int)
NON_NEGATIVE = number("number from 0", lambda value: 0 <= value < math.inf)
