"""Reads the connections of a run's processes from their command lines, and redirects command lines. No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from herd.launch.plan import ChildPlan, Start
from herd.topology import SERVICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Words = dict[str, str]
    """Option of a command line -> its value."""

_SCHEME = "tcp://"


@dataclass(frozen=True, slots=True)
class Link:
    """A connection that ``client`` makes to ``server``, both by their names in the run (``actor-0``)."""

    client: str
    option: str
    """Option of the client's command line with the address, or a list of addresses: ``--actor.learner``."""
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
    options: Mapping[str, str]
    """Server -> the option of its command line with that port."""


def read_wiring(plans: Iterable[ChildPlan]) -> Wiring:
    """Read the wiring from the command lines of the run's first start.

    Raises:
        ValueError: no process listens on an address.
    """
    commands = {plan.name: (plan.service, options(plan.command(Start(0, 0.0)))) for plan in plans}
    sections: dict[str, str] = {service.name: service.section for service in SERVICES}
    ports = {name: (option := f"--{sections[service]}.port", words.get(option)) for name, (service, words) in commands.items()}
    listening = {int(port): name for name, (_, port) in ports.items() if port is not None}
    links = []
    for name, (_, words) in commands.items():
        for option, value in words.items():
            for address in _addresses(value):
                port = int(address.rpartition(":")[2])
                if port not in listening:
                    raise ValueError(f"{name} {option} {value}: no process of the run listens there")
                links.append(Link(name, option, listening[port]))
    return Wiring(
        links=tuple(links),
        ports={name: port for port, name in listening.items()},
        options={name: option for name, (option, port) in ports.items() if port is not None},
    )


def _addresses(value: str) -> list[str]:
    found = json.loads(value) if value.startswith(f'["{_SCHEME}') else [value]
    return [address for address in found if address.startswith(_SCHEME)]


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
