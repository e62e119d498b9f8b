"""A sweep: which of the swept values each agent of a run has."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.config.section import Section

SECTIONS = ("loss", "optimizer")
"""Whose settings an agent may have of its own: only its learner reads them."""
SHARED = frozenset({"loss.kind", "loss.ablation", "loss.function", "loss.head", "loss.options", "optimizer.kind"})
"""What is the same for all agents all the same: actors, bandit and network depend on it."""

Sweep = dict[str, list[float | int | bool | str | None]]
"""Values by dotted key."""


def num_combinations(sweep: Mapping[str, Sequence[Any]]) -> int:
    """Agents that a sweep makes; 1 without one."""
    return math.prod(len(values) for values in sweep.values())


def swept_values(sweep: Mapping[str, Sequence[Any]], agent: int) -> dict[str, Any]:
    """An agent's values by dotted key: of the product of all lists, in which the last key varies fastest."""
    combination = next(itertools.islice(itertools.product(*sweep.values()), agent, None), ())
    return dict(zip(sweep, combination, strict=False))


def swept_section(name: str, section: Section, values: Mapping[str, Any]) -> Section:
    """Return a section with the swept values that are its own.

    Raises:
        ValueError: one line: it has no such setting, or not such a value.

    """
    own = {key.removeprefix(f"{name}."): value for key, value in values.items() if key.startswith(f"{name}.")}
    if not own:
        return section
    try:
        return type(section).model_validate({**section.model_dump(), **own})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join([name, *(str(part) for part in first["loc"])])
        message = " ".join(str(first["msg"]).removeprefix("Value error, ").split())
        raise ValueError(f"sweep: {key}: {message}") from None


def check_keys(sweep: Mapping[str, Sequence[Any]]) -> None:
    """Every key is one that agents may differ in, and has values.

    Raises:
        ValueError: one line that names the key.

    """
    for key, values in sweep.items():
        if key.partition(".")[0] not in SECTIONS or key in SHARED:
            raise ValueError(f"sweep: {key} is the same for all agents of a run; they may differ in settings of loss and optimizer")
        if not values:
            raise ValueError(f"sweep: {key} has no values")
