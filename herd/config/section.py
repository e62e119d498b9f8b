"""What every section of settings is made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
MOST_INTEGER = 1 << 63
"""Larger numbers do not fit into the counters of C and numpy."""
MOST_SECONDS = 1e9
"""30 years; the clocks of sockets and threads overflow at 292."""
Port = Annotated[int, Field(ge=0, le=65535)]


class Section(BaseModel):
    """The settings of one owner: frozen, and unknown keys are refused. The docstring under a field is its help text and names its unit."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @field_validator("*")
    @classmethod
    def _is_of_a_usable_size(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, int) and abs(value) >= MOST_INTEGER:
            raise ValueError("should be below 2^63")
        if isinstance(value, int | float) and str(info.field_name).endswith("_seconds") and value > MOST_SECONDS:
            raise ValueError(f"should be at most {MOST_SECONDS:g} seconds")
        return value
