"""Sections that come in variants. One key, the discriminator, chooses the variant; a key of another variant is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Variants:
    """The variants of a section."""

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
    return Variants(discriminator, models, getattr(field.default, discriminator))


def with_default_variants(model: type[BaseModel], values: object) -> object:
    """Return ``values`` of a model with the default variant set in each section that does not choose one."""
    if not isinstance(values, Mapping):
        return values
    named: dict[str, Any] = dict(values)
    for name, field in model.model_fields.items():
        variants, section = variants_of(field), named.get(name)
        if variants is not None and isinstance(section, Mapping) and variants.discriminator not in section:
            named[name] = {variants.discriminator: variants.default, **section}
    return named
