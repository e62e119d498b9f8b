"""The flat list of settings: one dotted key per leaf of ``RunSettings``, with its type, default and help.

Every source of settings, the help text and docs/configuration.md are derived from this list.
"""

from __future__ import annotations

import difflib
import types
import typing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from herd.components.settings import Variants, variants_of
from herd.config.run import RunSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

ENVIRONMENT_PREFIX = "HERD_"
_SECTION_SEPARATOR = "__"
"""Two underscores in the name of an environment variable stand for the dot of the key; a single one is part of a word."""


@dataclass(frozen=True, slots=True, eq=False)
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

    @property
    def default_text(self) -> str:
        """The default as a user would type it; ``required`` if there is none."""
        if self.default is PydanticUndefined:
            return "required"
        if self.default is None:
            return "null"
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if isinstance(self.default, dict):
            return "{}"
        if self.default == ():
            return "[]"
        return ",".join(map(str, self.default)) if isinstance(self.default, tuple) else str(self.default)


@cache
def setting_keys() -> tuple[SettingKey, ...]:
    """Return every setting once, in the order of the model. A setting of several variants accepts what any of them accepts."""
    return tuple(_by_path().values())


@cache
def keys_by_variant() -> tuple[SettingKey, ...]:
    """Return every setting, once for each variant of its section that has it."""
    return tuple(_leaves(RunSettings, ()))


@cache
def section_variants() -> dict[str, Variants]:
    """Return the sections with variants, by dotted name."""
    return {name: section for name, section in _sections().items() if isinstance(section, Variants)}


@cache
def section_help() -> dict[str, str]:
    """Return the first docstring line of each section by name, of a variant as ``loss.impala``, and of the run under the empty name."""
    texts = {"": _first_line(RunSettings)}
    for name, section in _sections().items():
        if isinstance(section, Variants):
            texts[name] = f"{name}.{section.discriminator} chooses one of {', '.join(section.models)}."
            texts.update({f"{name}.{kind}": _first_line(model) for kind, model in section.models.items()})
        else:
            texts[name] = _first_line(section)
    return texts


def find_key(path: tuple[str, ...]) -> SettingKey | None:
    """Return the setting at ``path``, or None if there is no such setting. The name of a section with variants is its discriminator."""
    variants = section_variants().get(".".join(path))
    return _by_path().get(path if variants is None else (*path, variants.discriminator))


def is_section(path: tuple[str, ...]) -> bool:
    """Whether ``path`` names a section (the empty path is the whole run)."""
    return not path or ".".join(path) in _sections()


def close_setting(dotted: str, *, prefix: str = "") -> str:
    """As `close_match`, for a dotted key whose section may be missing or wrong. ``prefix`` is put before the suggestion."""
    known = [key.dotted for key in setting_keys()]
    section, _, own = dotted.rpartition(".")
    of_name = [name for name in known if name.rpartition(".")[2] == own]
    of_initials = [name for name in known if _initials(name) == own and name.startswith(section)]  # lr: learning_rate
    matches = [name for name in (f"placement.{own}", f"placement.{own}s") if name in known]  # where one expects the port of a service
    matches = matches or (of_name if len(of_name) == 1 else sorted(of_initials, key=lambda name: len(name.rpartition(".")[2])))
    matches = matches or difflib.get_close_matches(dotted, known, n=1, cutoff=0.75) or of_name
    return f"; did you mean {prefix}{matches[0]}?" if matches else ""


def _initials(dotted: str) -> str:
    return "".join(word[:1] for word in dotted.rpartition(".")[2].split("_"))


@cache
def _by_path() -> dict[tuple[str, ...], SettingKey]:
    merged: dict[tuple[str, ...], SettingKey] = {}
    for key in keys_by_variant():
        known = merged.get(key.path)
        merged[key.path] = key if known is None else _either(known, key)
    return merged


@cache
def _sections() -> dict[str, type[BaseModel] | Variants]:
    def visit(model: type[BaseModel], prefix: tuple[str, ...]) -> Iterator[tuple[str, type[BaseModel] | Variants]]:
        for name, field in model.model_fields.items():
            path, section = (*prefix, name), _section_of(field)
            if section is not None:
                yield ".".join(path), section
                for inner in section.models.values() if isinstance(section, Variants) else (section,):
                    yield from visit(inner, path)

    return dict(visit(RunSettings, ()))


def _leaves(model: type[BaseModel], prefix: tuple[str, ...]) -> Iterator[SettingKey]:
    for name, field in model.model_fields.items():
        path, section = (*prefix, name), _section_of(field)
        if section is None:
            yield _leaf(path, field)
        elif isinstance(section, Variants):
            for kind, variant in section.models.items():
                keys = [replace(key, variants=(kind,)) for key in _leaves(variant, path)]
                yield from sorted(keys, key=lambda key: key.path[-1] != section.discriminator)
        else:
            yield from _leaves(section, path)


def _section_of(field: FieldInfo) -> type[BaseModel] | Variants | None:
    """Return the model or the variants of a field that is a section; None for a setting."""
    annotation = field.annotation
    return variants_of(field) or (annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None)


def _either(one: SettingKey, other: SettingKey) -> SettingKey:
    text = " or ".join(dict.fromkeys([*one.type_text.split(" or "), *other.type_text.split(" or ")]))
    return replace(one, kinds=one.kinds | other.kinds, type_text=text, variants=(*one.variants, *other.variants))


def _leaf(path: tuple[str, ...], field: FieldInfo) -> SettingKey:
    kinds, text = _describe(field.annotation)
    return SettingKey(
        path=path,
        type_text=f"{text} {_bounds(field.metadata)}".strip(),
        kinds=frozenset(kinds),
        default=field.get_default(call_default_factory=True),
        help=" ".join((field.description or "").split()),
    )


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().partition("\n")[0]


_SCALARS: dict[object, str] = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string", type(None): "null"}


def _describe(annotation: Any) -> tuple[set[str], str]:
    """Return the kinds of value that an annotation accepts, and a description for users."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        kinds, text = _describe(inner)
        # Field(ge=0) inside Annotated carries its bounds in its own metadata.
        bounds = _bounds(part for item in metadata for part in (getattr(item, "metadata", None) or [item]))
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


def _bounds(metadata: typing.Iterable[Any]) -> str:
    symbols = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    found = {name: getattr(item, name) for item in metadata for name in symbols if getattr(item, name, None) is not None}
    if found.get("gt") == 0 and found.get("ge", 0) > 0:
        del found["gt"]  # a positive integer with a higher bound
    return " and ".join(f"{symbol} {found[name]:.12g}" for name, symbol in symbols.items() if name in found)
