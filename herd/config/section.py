"""What every section of settings is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Port = Annotated[int, Field(ge=0, le=65535)]


class Section(BaseModel):
    """One owner's settings: frozen, unknown keys refused. The docstring under a field is its help text and names its unit."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
