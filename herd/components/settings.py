"""What every section of settings is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
Pixels = Annotated[int, Field(gt=0, le=4096)]
"""Height or width of a picture. The bound is that of a large screen; a larger picture is a mistake that would fill memory."""
PositiveFloat = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
MAX_INTEGER = 1 << 63
"""Larger numbers do not fit into the counters of C and numpy."""
MAX_SECONDS = 1e9
"""30 years; the clocks of sockets and threads overflow at 292."""
MAX_FLOAT = 3.4028234663852886e38
"""Larger numbers do not fit into single precision, in which devices compute."""
Port = Annotated[int, Field(ge=0, le=65535)]
TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
FALSE_WORDS = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True, slots=True)
class Variants:
    """A section that comes in variants. One key, the discriminator, chooses the variant; a key of another variant is refused."""

    discriminator: str
    """The key that chooses the variant, such as ``kind``."""
    models: Mapping[str, type[BaseModel]]
    """The variants by the discriminator's value."""
    default: str
    """The default variant."""


def variants_of(field: FieldInfo) -> Variants | None:
    """Return the variants of a section, which is a field whose annotation is a discriminated union; None for any other field."""
    discriminator = field.discriminator
    if not isinstance(discriminator, str):
        return None
    models = {model.model_fields[discriminator].default: model for model in get_args(field.annotation)}
    return Variants(discriminator, models, getattr(field.get_default(call_default_factory=True), discriminator))


class Section(BaseModel):
    """The settings of one owner: frozen, and unknown keys are refused. The docstring under a field is its help text and names its unit."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _choose_variants(cls, values: Any) -> Any:
        """Choose the default variant of each section that chooses none. A text instead of a section is the variant's name."""
        if not isinstance(values, Mapping):
            return values
        chosen: dict[str, Any] = dict(values)
        for name, field in cls.model_fields.items():
            section, variants = values.get(name), variants_of(field)
            if variants is not None and isinstance(section, str):
                chosen[name] = {variants.discriminator: section}
            elif variants is not None and isinstance(section, Mapping) and variants.discriminator not in section:
                chosen[name] = {variants.discriminator: variants.default, **section}
        return chosen

    @field_validator("*")
    @classmethod
    def _is_of_a_usable_size(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, int) and abs(value) >= MAX_INTEGER:
            raise ValueError("should be below 2^63")
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and MAX_FLOAT < abs(number) < math.inf:
                raise ValueError(f"should be at most {MAX_FLOAT:.2g}, the largest number in single precision")
        if isinstance(value, int | float) and str(info.field_name).endswith("_seconds") and value > MAX_SECONDS:
            raise ValueError(f"should be at most {MAX_SECONDS:g} seconds")
        return value
