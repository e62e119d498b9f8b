"""Parses the Dockerfile into lists of instructions; supports only the syntax that it uses."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import NamedTuple

from herd.topology import SERVICES

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "images" / "Dockerfile"
WITH_TORCH = tuple(service.name for service in SERVICES if service.has_torch)


class Instruction(NamedTuple):
    """One instruction: its keyword in capitals, and the rest with continued lines joined."""

    word: str
    rest: str


class Stage(NamedTuple):
    """The instructions from one FROM to the next."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]

    def last(self, word: str) -> str | None:
        """Return the argument of the last instruction with this keyword."""
        return next((rest for found, rest in reversed(self.instructions) if found == word), None)


def instructions(text: str) -> list[Instruction]:
    joined = "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")).replace("\\\n", " ")
    words = (line.split(maxsplit=1) for line in joined.splitlines())
    return [Instruction(word.upper(), " ".join(rest.split())) for word, rest in words]


def stages() -> list[Stage]:
    found: list[tuple[str, str, list[Instruction]]] = []
    for instruction in instructions(DOCKERFILE.read_text()):
        if instruction.word == "FROM":
            base, _, name = instruction.rest.partition(" AS ")
            found.append((base, name, []))
        elif found:
            found[-1][2].append(instruction)
    return [Stage(base, name, tuple(lines)) for base, name, lines in found]


def shipped(service: str, target: str | None = None) -> Stage:
    """A stage, by default the last one, together with the stages that it is based on: the content of a service's container."""
    by_name = {stage.name: stage for stage in stages()}
    stage = stages()[-1] if target is None else by_name[target]
    lines = list(stage.instructions)
    while (base := stage.base.replace("${SERVICE}", service)) in by_name:
        stage = by_name[base]
        lines = [*stage.instructions, *lines]
    return Stage(stage.base, service, tuple(lines))


def environment(service: str, target: str | None = None) -> dict[str, str]:
    return _assignments(service, target, "ENV")


def labels(service: str) -> dict[str, str]:
    return {name.removeprefix("org.opencontainers.image."): value for name, value in _assignments(service, None, "LABEL").items()}


def entrypoint(service: str, target: str | None = None) -> list[str]:
    words: list[str] = json.loads(shipped(service, target).last("ENTRYPOINT") or "[]")
    return words


def _assignments(service: str, target: str | None, word: str) -> dict[str, str]:
    """``NAME=value`` of all instructions with a keyword; a later one overrides an earlier one."""
    found = [shlex.split(each.rest) for each in shipped(service, target).instructions if each.word == word]
    return dict(assignment.split("=", 1) for words in found for assignment in words)
