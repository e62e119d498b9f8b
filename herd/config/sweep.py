"""A sweep: the initial values of the swept settings of each agent of a run. In a population they change during the run.

An agent gets a combination of listed values, and draws the others by rules (IMPALA, Table D.1; PopArt, Table 9).
"""

from __future__ import annotations

import itertools
import math
import re
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, TypeAdapter, ValidationError, model_validator

from herd.components.settings import PositiveFloat, Section
from herd.config.errors import close_match

if TYPE_CHECKING:
    from collections.abc import Mapping

SECTIONS = ("loss", "optimizer")
"""Sections whose settings may differ between agents, because only the agent's learner reads them."""
SHARED = frozenset({"loss.kind", "loss.ablation", "loss.function", "loss.head", "loss.options", "optimizer.kind"})
"""Settings of these sections that must be the same for all agents, because actors, bandit and network depend on them."""


_EXPONENT = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+")


def _number_without_a_point(value: object) -> object:
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


Value = Annotated[float | int | bool | str | None, BeforeValidator(_number_without_a_point)]
"""The value of a setting. YAML 1.1 reads ``1e-7`` as a text, because it has no decimal point; here it is converted to a number."""


class _Range(Section):
    low: float
    high: float

    @model_validator(mode="after")
    def _low_is_below_high(self) -> Self:
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"low {self.low:g} must be below high {self.high:g}")
        return self


class LogUniform(_Range):
    """Log-uniform between ``low`` and ``high``."""

    draw: Literal["log_uniform"] = "log_uniform"
    """The value's logarithm is uniform."""
    low: PositiveFloat
    """Least value."""
    high: PositiveFloat
    """Greatest value."""

    def drawn(self, random: Random) -> float:
        """One value."""
        exponent = random.uniform(math.log(self.low), math.log(self.high))
        return min(max(math.exp(exponent), self.low), self.high)


class Uniform(_Range):
    """Uniform between ``low`` and ``high``."""

    draw: Literal["uniform"] = "uniform"
    """The value is uniform."""
    low: float
    """Least value."""
    high: float
    """Greatest value."""

    def drawn(self, random: Random) -> float:
        """One value."""
        return random.uniform(self.low, self.high)


class Choice(Section):
    """One of several values with equal probability."""

    draw: Literal["choice"] = "choice"
    """One of ``values``, with equal probability."""
    values: tuple[Value, ...] = Field(min_length=1)
    """The values to draw from."""

    def drawn(self, random: Random) -> Value:
        """One value."""
        return random.choice(self.values)


Draw = Annotated[LogUniform | Uniform | Choice, Field(discriminator="draw")]


def _list_or_draw(values: object) -> str:
    return "list" if isinstance(values, list | tuple) else "draw"


Sweep = dict[str, Annotated[Annotated[list[Value], Tag("list")] | Annotated[Draw, Tag("draw")], Discriminator(_list_or_draw)]]
"""By dotted key: a list of values, of which each agent gets another combination, or a rule by which each agent draws a value."""
_SWEEP: TypeAdapter[Sweep] = TypeAdapter(Sweep)


def num_combinations(sweep: Mapping[str, list[Value] | Draw]) -> int:
    """Number of combinations of the lists of a sweep; 1 without lists."""
    return math.prod(len(values) for values in sweep.values() if isinstance(values, list))


def has_lists(sweep: Mapping[str, list[Value] | Draw]) -> bool:
    """Whether a sweep has lists, which determine the number of agents."""
    return any(isinstance(values, list) for values in sweep.values())


def swept_values(sweep: Mapping[str, list[Value] | Draw], agent: int, seed: int) -> dict[str, Value]:
    """Return an agent's initial values by dotted key, in the order of the sweep.

    The agent's number selects a combination from the product of all lists, in which the last key varies fastest. A drawn value depends
    only on the run's ``seed``, the agent and the key, so it does not change when keys or agents are added.
    """
    lists = {key: values for key, values in sweep.items() if isinstance(values, list)}
    combination = next(itertools.islice(itertools.product(*lists.values()), agent, None), ())
    listed = dict(zip(lists, combination, strict=False))
    # From a text as the seed Python takes the SHA-512, which is the same in every process and release.
    drawn = {key: rule.drawn(Random(f"{seed}/{agent}/{key}")) for key, rule in sweep.items() if not isinstance(rule, list)}
    return {key: (listed | drawn)[key] for key in sweep if key in listed or key in drawn}


def parse_sweep(values: object) -> Sweep | None:
    """Parse a sweep from config.yaml; None if ``values`` is not a sweep."""
    try:
        return _SWEEP.validate_python(values)
    except ValidationError:
        return None


def swept_section(name: str, section: Section, values: Mapping[str, Any]) -> Section:
    """Return a section with those swept values that belong to it.

    Raises:
        ValueError: the section has no such setting, or does not accept the value; one line.

    """
    own = {key.removeprefix(f"{name}."): value for key, value in values.items() if key.startswith(f"{name}.")}
    if not own:
        return section
    try:
        return type(section).model_validate({**section.model_dump(), **own})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join([name, *(str(part) for part in first["loc"])])
        if first["type"] == "extra_forbidden":
            hint = close_match(key, (f"{name}.{field}" for field in type(section).model_fields))
            raise ValueError(f"sweep: {key}: no such setting of {name}.kind {section.model_dump()['kind']}{hint}") from None
        message = " ".join(str(first["msg"]).removeprefix("Value error, ").removeprefix("Input ").split())
        given = "" if first["type"] == "value_error" else f", not {first['input']!r}"
        raise ValueError(f"sweep: {key}: {message}{given}") from None


def check_keys(sweep: Mapping[str, list[Value] | Draw]) -> None:
    """Check that agents may differ in every key, and that every key has values.

    Raises:
        ValueError: one line that names the key.

    """
    for key, values in sweep.items():
        if key.partition(".")[0] not in SECTIONS or key in SHARED:
            raise ValueError(f"sweep: {key} must be the same for all agents of a run; they may differ in settings of loss and optimizer")
        if isinstance(values, list) and not values:
            raise ValueError(f"sweep: {key} has no values")
