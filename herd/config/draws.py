"""Rules by which an agent draws its initial value of a setting (IMPALA, Table D.1; PopArt, Table 9)."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from herd.components.settings import PositiveFloat, Section

if TYPE_CHECKING:
    from random import Random

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
