"""Sections that come in variants: one key of theirs, the discriminator, says which, and a key of another variant is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Variants:
    """What a section may be."""

    discriminator: str
    """The key that names the variant, such as ``kind``."""
    models: Mapping[str, type[BaseModel]]
    """By the discriminator's value."""
    default: str
    """The variant where none is named."""


def variants_of(field: FieldInfo) -> Variants | None:
    """The variants of a section, from a field whose annotation is a discriminated union; None for any other field."""
    discriminator = field.discriminator
    if not isinstance(discriminator, str):
        return None
    models = {model.model_fields[discriminator].default: model for model in get_args(field.annotation)}
    return Variants(discriminator, models, getattr(field.default, discriminator))


def with_default_variants(model: type[BaseModel], values: object) -> object:
    """``values`` of a model, where each section that does not name its variant is of the default one."""
    if not isinstance(values, Mapping):
        return values
    named: dict[str, Any] = dict(values)
    for name, field in model.model_fields.items():
        variants, section = variants_of(field), named.get(name)
        if variants is not None and isinstance(section, Mapping) and variants.discriminator not in section:
            named[name] = {variants.discriminator: variants.default, **section}
    return named
