"""Reads the connections of a run's processes from their command lines, and redirects command lines. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from herd.launch.plan import ChildPlan, Start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Words = dict[str, str]
    """Option of a command line -> its value."""

_SCHEME = "tcp://"
LISTEN = "--listen"
"""Option of a server's command line with its port."""


@dataclass(frozen=True, slots=True)
class Link:
    """A connection that ``client`` makes to ``server``, both by their names in the run (``actor-0``)."""

    client: str
    option: str
    """Option of the client's command line with the address, or several separated by commas: ``--learner``."""
    server: str

    @property
    def name(self) -> str:
        """``actor-0>learner-0``."""
        return f"{self.client}>{self.server}"


@dataclass(frozen=True, slots=True)
class Wiring:
    """All connections of a run, and the ports of its servers."""

    links: tuple[Link, ...]
    ports: Mapping[str, int]
    """Server -> port."""


def read_wiring(plans: Iterable[ChildPlan]) -> Wiring:
    """Read the wiring from the command lines of the run's first start.

    Raises:
        ValueError: no process listens on an address.
    """
    commands = {plan.name: options(plan.command(Start(0, 0.0))) for plan in plans}
    listening = {int(words[LISTEN].rpartition(":")[2]): name for name, words in commands.items() if LISTEN in words}
    links = []
    for name, words in commands.items():
        for option, value in words.items():
            for address in _addresses(value):
                port = int(address.rpartition(":")[2])
                if port not in listening:
                    raise ValueError(f"{name} {option} {value}: no process of the run listens there")
                links.append(Link(name, option, listening[port]))
    return Wiring(
        links=tuple(links),
        ports={name: port for port, name in listening.items()},
    )


def _addresses(value: str) -> list[str]:
    return [address for address in value.split(",") if address.startswith(_SCHEME)]


def rewired(plan: ChildPlan, changes: Callable[[], Mapping[str, Mapping[str, str]]]) -> ChildPlan:
    """Return the plan with other values for some options, read at each start: process -> option -> value."""

    def command(start: Start) -> list[str]:
        words = plan.command(start)
        for option, value in changes().get(plan.name, {}).items():
            words[words.index(option) + 1] = value
        return words

    return replace(plan, command=command)


def options(words: list[str]) -> Words:
    """Return the ``--option value`` pairs of a command line."""
    return {word: value for word, value in pairwise(words) if word.startswith("--")}
