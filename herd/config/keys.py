"""The flat list of settings: one dotted key per leaf of ``RunSettings``, with its type, default and help.

The command line, the environment, the help text and docs/configuration.md are all derived from this list.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from herd.config.settings import RunSettings
from herd.config.variants import Variants, variants_of

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

ENVIRONMENT_PREFIX = "HERD_"
_SECTION_SEPARATOR = "__"
"""Two underscores in the name of an environment variable stand for the dot of the key; a single one is part of a word."""


@dataclass(frozen=True, slots=True)
class SettingKey:
    """One leaf of ``RunSettings``."""

    path: tuple[str, ...]
    """Section names, then the field's own name."""
    type_text: str
    """The type for users, such as ``integer > 0 or null``."""
    kinds: frozenset[str]
    """Kinds of value that are accepted: ``integer``, ``number``, ``boolean``, ``string``, ``list``, ``mapping``, ``null``."""
    default: object
    """The model's default."""
    help: str
    """The field's docstring, on one line."""
    variants: tuple[str, ...] = ()
    """In a section with variants: the variants that have this setting."""

    @property
    def dotted(self) -> str:
        """As on the command line, without the dashes: ``learner.batch_size``."""
        return ".".join(self.path)

    @property
    def section(self) -> str:
        """``learner`` for ``learner.batch_size``; empty for a setting of the run itself."""
        return ".".join(self.path[:-1])

    @property
    def environment_name(self) -> str:
        """``HERD_LEARNER__BATCH_SIZE`` for ``learner.batch_size``."""
        return ENVIRONMENT_PREFIX + _SECTION_SEPARATOR.join(part.upper() for part in self.path)


@cache
def setting_keys() -> tuple[SettingKey, ...]:
    """Return every setting once, in the order of the model. A setting of several variants accepts what any of them accepts."""
    merged: dict[tuple[str, ...], SettingKey] = {}
    for key in keys_by_variant():
        known = merged.get(key.path)
        merged[key.path] = key if known is None else _either(known, key)
    return tuple(merged.values())


@cache
def keys_by_variant() -> tuple[SettingKey, ...]:
    """Return every setting, once for each variant of its section that has it."""
    return tuple(_leaves(RunSettings, ()))


@cache
def section_variants() -> dict[str, Variants]:
    """Return the sections with variants, by name."""
    found = ((name, variants_of(field)) for name, field in RunSettings.model_fields.items())
    return {name: variants for name, variants in found if variants is not None}


@cache
def section_help() -> dict[str, str]:
    """Return the first docstring line of each section by name, of a variant as ``loss.impala``, and of the run under the empty name."""
    sections = {"": _first_line(RunSettings)}
    for name, field in RunSettings.model_fields.items():
        model = _section_model(field.annotation)
        if model is not None:
            sections[name] = _first_line(model)
    for name, variants in section_variants().items():
        sections[name] = f"{name}.{variants.discriminator} chooses one of {', '.join(variants.models)}."
        sections.update({f"{name}.{kind}": _first_line(model) for kind, model in variants.models.items()})
    return sections


def find_key(path: tuple[str, ...]) -> SettingKey | None:
    """Return the setting at ``path``, or None if there is no such setting (a section is not a setting)."""
    return _by_path().get(path)


def is_section(path: tuple[str, ...]) -> bool:
    """Whether ``path`` names a section (the empty path is the whole run)."""
    return any(key.path[: len(path)] == path and len(key.path) > len(path) for key in setting_keys())


@cache
def _by_path() -> dict[tuple[str, ...], SettingKey]:
    return {key.path: key for key in setting_keys()}


def _leaves(model: type[BaseModel], prefix: tuple[str, ...]) -> list[SettingKey]:
    leaves: list[SettingKey] = []
    for name, field in model.model_fields.items():
        section, variants = _section_model(field.annotation), variants_of(field)
        if variants is not None:
            for kind, variant in variants.models.items():
                keys = [replace(key, variants=(kind,)) for key in _leaves(variant, (*prefix, name))]
                leaves.extend(sorted(keys, key=lambda key: key.path[-1] != variants.discriminator))
        elif section is not None:
            leaves.extend(_leaves(section, (*prefix, name)))
        else:
            leaves.append(_leaf((*prefix, name), field))
    return leaves


def _either(one: SettingKey, other: SettingKey) -> SettingKey:
    text = one.type_text if other.type_text == one.type_text else f"{one.type_text} or {other.type_text}"
    return replace(one, kinds=one.kinds | other.kinds, type_text=text, variants=(*one.variants, *other.variants))


def _leaf(path: tuple[str, ...], field: FieldInfo) -> SettingKey:
    kinds, text = _describe(field.annotation)
    bounds = _bounds(field.metadata)
    if bounds:
        text = f"{text} {bounds}"
    return SettingKey(
        path=path,
        type_text=text,
        kinds=frozenset(kinds),
        default=field.get_default(call_default_factory=True),
        help=" ".join((field.description or "").split()),
    )


def _section_model(annotation: object) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().partition("\n")[0]


_SCALARS: dict[object, str] = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string", type(None): "null"}


def _describe(annotation: Any) -> tuple[set[str], str]:
    """Return the kinds of value that an annotation accepts, and a description for users."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        kinds, text = _describe(inner)
        bounds = _bounds(_unwrap(metadata))
        return kinds, f"{text} {bounds}".strip()
    if origin in (Union, types.UnionType):
        described = [_describe(argument) for argument in get_args(annotation)]
        return set().union(*(kinds for kinds, _ in described)), " or ".join(text for _, text in described)
    if origin is Literal:
        return {"string"}, ", ".join(str(choice) for choice in get_args(annotation))
    if origin in (tuple, list):
        _, text = _describe(get_args(annotation)[0])
        noun, _, bounds = text.partition(" ")
        return {"list"}, f"list of {noun}s {bounds}".strip() if noun in _SCALARS.values() else f"list of {text}"
    kind = "mapping" if origin is dict else _SCALARS.get(annotation)
    if kind is None:  # a type of another package's suite: described by its own name
        return {"string"}, getattr(annotation, "__name__", str(annotation))
    return {kind}, "path" if annotation is Path else kind


def _unwrap(metadata: typing.Iterable[Any]) -> list[Any]:
    """``Field(ge=0)`` inside ``Annotated`` carries its bounds in its own metadata."""
    return [inner for item in metadata for inner in (getattr(item, "metadata", None) or [item])]


def _bounds(metadata: typing.Iterable[Any]) -> str:
    symbols = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))
    found = [f"{symbol} {getattr(item, name):g}" for item in metadata for name, symbol in symbols if getattr(item, name, None) is not None]
    return " and ".join(found)
