"""Loads settings: defaults < YAML files in order < environment < command line.

Each source is read into a layer that remembers where every value came from. So every error is one line with the key, the problem, the
source, and the setting that was probably meant.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from herd.config.arguments import parse_overrides
from herd.config.curve_keys import CURVE_VARIABLES, RUN_TOKEN_VARIABLE
from herd.config.errors import Layer, SettingsError, close_match, close_setting, parse_text
from herd.config.experiments import find_run_file
from herd.config.keys import ENVIRONMENT_PREFIX, find_key, is_section, section_variants, setting_keys
from herd.config.settings import RunSettings
from herd.config.suites import installed_suites
from herd.config.user_code import USER_CODE
from herd.config.yaml_files import read_mapping, read_yaml_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails

_BOUNDS = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})

__all__ = ["SettingsError", "dump_settings", "environment_layer", "load_settings", "settings_json_schema"]


def load_settings(
    files: Sequence[Path],
    overrides: Sequence[str],
    environ: Mapping[str, str],
    *,
    base: Mapping[str, object] | None = None,
    given: Mapping[str, object] | None = None,
) -> RunSettings:
    """Load the settings of a run.

    Args:
        files: YAML files or names of shipped experiments, deep-merged in this order; a list replaces a list.
        overrides: command-line words such as ``["--learner.batch_size", "64", "--resume"]``.
        environ: process environment; every name that starts with ``HERD_`` must be a setting, or hold a CURVE key.
        base: settings by section, or by dotted key, that everything else overrides.
        given: the same, which overrides everything else.

    Raises:
        SettingsError: one line that names the key or file, where it came from, and a close match.

    """
    layers = [
        *([] if base is None else [read_mapping(base, "settings")]),
        *(read_yaml_file(find_run_file(file)) for file in files),
        environment_layer(environ),
        parse_overrides(overrides),
        *([] if given is None else [read_mapping(given, "arguments")]),
    ]
    _check_suite(layers)
    for layer in layers:
        _check_names(layer)
    merged: dict[str, Any] = {}
    for number, layer in enumerate(layers):
        for name in _changed_variants(merged, layer):
            # The values of weaker sources belong to the other variant: an epsilon of RMSProp has another meaning for AdamW.
            merged.pop(name, None)
            for weaker in layers[:number]:
                weaker.forget(name)
        _merge(merged, layer.values)
    try:
        return RunSettings.model_validate(merged)
    except ValidationError as error:
        raise SettingsError(_one_line(error, layers)) from None


def dump_settings(settings: RunSettings) -> str:
    """Return YAML with every setting, from which equal settings are loaded."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def settings_json_schema() -> dict[str, Any]:
    """JSON schema (2020-12) of a run file, unknown keys forbidden."""
    schema = RunSettings.model_json_schema()
    for name, variants in section_variants().items():
        schema["properties"][name].pop("discriminator")  # OpenAPI's word, unknown to JSON schema
        for kind, model in variants.models.items():
            if kind != variants.default:
                schema["$defs"][model.__name__].setdefault("required", []).append(variants.discriminator)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """Read the settings named by environment variables: ``HERD_LEARNER__BATCH_SIZE`` is ``learner.batch_size``.

    Raises:
        SettingsError: a ``HERD_`` variable that is neither a setting nor a key.

    """
    names = {key.environment_name: key for key in setting_keys()}
    layer = Layer()
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in CURVE_VARIABLES | {RUN_TOKEN_VARIABLE}:
            continue  # keys are not settings, so nothing that writes settings can write keys
        key = names.get(name)
        if key is None:
            raise SettingsError(f"{name}: no such setting (environment){close_match(name, [*names, *sorted(CURVE_VARIABLES)])}")
        layer.set(key.path, parse_text(key, [environ[name]]), f"environment {name}")
    return layer


def _changed_variants(merged: Mapping[str, Any], layer: Layer) -> Iterator[str]:
    """Yield the sections for which ``layer`` chooses another variant than the sources before it."""
    for name, variants in section_variants().items():
        section = layer.values.get(name)
        if isinstance(section, dict) and variants.discriminator in section:
            before = merged.get(name, {}).get(variants.discriminator, variants.default)
            if section[variants.discriminator] != before:
                yield name


def _merge(target: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Merge ``values`` into ``target``, section by section; ``values`` win."""
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(target.get(name), dict):
            _merge(target[name], value)
        else:
            target[name] = dict(value) if isinstance(value, dict) else value


def _check_suite(layers: Sequence[Layer]) -> None:
    """Refuse a suite that cannot be loaded, whose settings are therefore unknown."""
    chosen = ("env", "suite")
    for layer in reversed(layers):
        if chosen in layer.origins:
            if (reason := installed_suites().broken.get(str(layer.values["env"]["suite"]))) is not None:
                raise SettingsError(f"env.suite: {reason} ({layer.origins[chosen]})")
            return


def _check_names(layer: Layer) -> None:
    """Check that every leaf of the layer is a setting and not a section."""
    for path, origin in layer.origins.items():
        if find_key(path) is not None:
            continue
        dotted = ".".join(path)
        if is_section(path):
            raise SettingsError(f"{dotted}: is a section of settings and takes no value ({origin})")
        raise SettingsError(f"{dotted}: no such setting ({origin}){close_setting(dotted, (key.dotted for key in setting_keys()))}")


def _one_line(error: ValidationError, layers: Sequence[Layer]) -> str:
    details = error.errors(include_url=False)
    first = details[0]
    more = f"; and {len(details) - 1} more" if len(details) > 1 else ""
    path = _without_variant(tuple(str(part) for part in first["loc"]))
    message = " ".join(first["msg"].removeprefix("Value error, ").split())
    if path and path[0] in section_variants():
        about = _about_variant(first, path, layers)
        if about is not None:
            return about + more
    key = next((path[:end] for end in range(len(path), 0, -1) if find_key(path[:end])), None)
    if key is not None and first["type"] == "missing":
        return f"{'.'.join(key)}: is missing, and has no default{more}"
    if key is not None:
        # In a sweep, the key is the setting that is swept: the error names a part of a union of lists and rules.
        where = ": ".join(path[:2]) if path[0] == "sweep" else ".".join(key)
        return f"{where}: {_wanted(key, first, message, is_whole=key == path)}, not {_shown(first)} ({_origin_of(key, layers)}){more}"
    # The error is about several settings: name the source of each.
    named = [setting for setting in setting_keys() if _names(setting.path, path, message)]
    origins = {f"{setting.dotted}: {_origin_of(setting.path, layers)}" for setting in named}
    return f"{message} ({'; '.join(sorted(origins)) or 'settings'}){more}"


def _without_variant(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return a pydantic location without the tag that pydantic adds after a section with variants."""
    variants = section_variants().get(path[0]) if path else None
    return (path[0], *path[2:]) if variants is not None and len(path) > 1 and path[1] in variants.models else path


def _about_variant(detail: ErrorDetails, path: tuple[str, ...], layers: Sequence[Layer]) -> str | None:
    """Describe a wrong choice of a variant, or a setting that the chosen variant does not have; None for any other error."""
    variants = section_variants()[path[0]]
    chooser = (path[0], variants.discriminator)
    if detail["type"] == "union_tag_invalid":
        given = detail["input"].get(variants.discriminator)
        hint = close_match(str(given), list(variants.models))
        return f"{'.'.join(chooser)}: should be {_listed(variants.models)}, not {given!r} ({_origin_of(chooser, layers)}){hint}"
    if detail["type"] == "extra_forbidden":
        key = find_key(path)
        chosen = str(detail["loc"][1])
        owners = f"{'.'.join(chooser)} {_listed(key.variants)} has it" if key is not None else "no variant has it"
        origin = f"{_origin_of(path, layers)}; {'.'.join(chooser)}: {_origin_of(chooser, layers)}"
        return f"{'.'.join(path)}: does not apply to {'.'.join(chooser)} {chosen}; {owners} ({origin})"
    return None


def _listed(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _names(path: tuple[str, ...], section: tuple[str, ...], message: str) -> bool:
    if section and path[: len(section)] != section:
        return False
    word = path[-1] if section else ".".join(path)
    return re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", message) is not None


def _origin_of(path: tuple[str, ...], layers: Sequence[Layer]) -> str:
    return next((layer.origins[path] for layer in reversed(layers) if path in layer.origins), "default")


def _shown(detail: ErrorDetails) -> str:
    """Return the offending value, short enough for one line."""
    limit = 60
    text = repr(detail["input"])
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _wanted(path: tuple[str, ...], detail: ErrorDetails, message: str, *, is_whole: bool) -> str:
    """Say what the setting accepts: the description of its type, or the validator's message for anything finer."""
    key = find_key(path)
    if key is not None and (detail["type"].endswith(("_type", "_parsing")) or (is_whole and detail["type"] in _BOUNDS)):
        return f"should be {key.type_text}"
    if detail["type"] == "union_tag_invalid":
        return f"{(detail.get('ctx') or {})['discriminator']} should be one of {(detail.get('ctx') or {})['expected_tags']}"
    if detail["type"] == "too_short":
        return "should not be empty"
    if detail["type"] == "string_pattern_mismatch":
        is_user_code = (detail.get("ctx") or {}).get("pattern") == USER_CODE
        return "should be module:function" if is_user_code else "should be letters, digits and . - _, with a letter or digit first"
    message = message.removeprefix("Input ")
    return message[:1].lower() + message[1:]
