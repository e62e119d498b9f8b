"""Options of the benchmarks' commands: what is wrong with one is said in one line, as the settings do."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, NoReturn

from herd.config.loading import SettingsError
from herd.topology import SERVERS, SERVICE_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable


FREE_PORTS = tuple(
    word
    for key in (*(f"{server.name}.port" for server in SERVERS), *(f"{name}.metrics_port" for name in SERVICE_NAMES))
    for word in (f"--{key}", "0")
)
"""For a run of a benchmark's own: ports that a settings file fixes may be those of a run that is going on."""


class Parser(argparse.ArgumentParser):
    """Raises ``SettingsError`` where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, with the command before it."""
        raise SettingsError(f"{self.prog.removeprefix('herd ')}: {message}")


def positive(kind: type[float] | type[int]) -> Callable[[str], float]:
    """Parser of a finite number above 0."""

    def parse(text: str) -> float:
        value = kind(text)
        if not 0 < value < math.inf:
            raise ValueError
        return value

    parse.__name__ = f"positive {kind.__name__}"  # what argparse calls it in its error message
    return parse
