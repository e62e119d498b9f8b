"""Loads settings: defaults < YAML files in order < environment < command line.

A source is a flat mapping that remembers where every value came from, so every error is one line with the key, the problem, the origin, and
the setting that was probably meant (docs/decisions/0004-settings-sources.md).
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from herd.components.suites import SUITES
from herd.components.trackers import TRACKERS
from herd.components.user_code import USER_CODE
from herd.config.errors import SettingsError, close_match
from herd.config.experiments import find_run_file, suite_presets
from herd.config.loading.keys import close_setting, find_key, is_section, section_variants, setting_keys
from herd.config.loading.sources import Given, Source, read_arguments, read_environment, read_mapping, read_yaml_file
from herd.config.run import REGISTRIES, RunSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from herd.config.loading.keys import SettingKey

_NUMBER_WITH_UNIT = re.compile(r"\d[\d.,_' ]*[A-Za-z]*")
_BOUNDS = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})
_MAX_CHARACTERS = 60
"""Longest value that is quoted in an error."""

__all__ = ["SettingsError", "dump_settings", "load_settings", "settings_json_schema"]


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
    sources = [
        read_mapping(base or {}, "settings"),
        *(read_yaml_file(find_run_file(file)) for file in files),
        read_environment(environ),
        read_arguments(overrides),
        read_mapping(given or {}, "arguments"),
    ]
    _check_parts(sources)
    merged: Source = {}
    for source in sources:
        _check_names(source)
        _merge(merged, source)
    _add_protocol(merged)
    nested: dict[str, Any] = {}
    for path, (value, _) in merged.items():
        section = nested
        for name in path[:-1]:
            section = section.setdefault(name, {})
        section[path[-1]] = value
    try:
        return RunSettings.model_validate(nested)
    except ValidationError as error:
        first, *others = error.errors(include_url=False)
        more = f"; and {len(others)} more" if others else ""
        raise SettingsError(_one_line(first, merged) + more) from None


def dump_settings(settings: RunSettings) -> str:
    """Return YAML with every setting, from which equal settings are loaded."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def settings_json_schema() -> dict[str, Any]:
    """JSON schema (2020-12) of a run file, unknown keys forbidden."""
    schema = RunSettings.model_json_schema()
    for model in (schema, *schema["$defs"].values()):
        for section in model.get("properties", {}).values():
            if section.pop("discriminator", None) is not None:  # OpenAPI's word, unknown to JSON schema
                section["anyOf"] = [{"oneOf": section.pop("oneOf")}, {"type": "string"}]  # a text is the variant's name
    for variants in section_variants().values():
        for kind, variant in variants.models.items():
            if kind != variants.default:
                schema["$defs"][variant.__name__].setdefault("required", []).append(variants.discriminator)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _merge(merged: Source, source: Source) -> None:
    """Add the values of a stronger source; those of mappings (``sweep``, ``env.kwargs``) are added to the weaker ones."""
    for section, variants in section_variants().items():
        path = tuple(section.split("."))
        chooser = (*path, variants.discriminator)
        before = merged[chooser].value if chooser in merged else variants.default
        if chooser in source and source[chooser].value != before:
            # The values of weaker sources belong to the other variant: an epsilon of RMSProp has another meaning for AdamW.
            for other in [other for other in merged if other[: len(path)] == path]:
                del merged[other]
    for path, given in source.items():
        weaker = merged[path].value if path in merged else None
        both = isinstance(weaker, dict) and isinstance(given.value, dict)
        merged[path] = given._replace(value=weaker | given.value) if both else given


def _add_protocol(merged: Source) -> None:
    """Add the settings with which ``evaluation.protocol`` trains, a preset of the suite, where no source gives them.

    The settings of a run that goes on are all in its config.yaml, so a protocol that is chosen later does not change its games.
    """
    protocol, suite = (merged.get(path) for path in (("evaluation", "protocol"), ("env", "suite")))
    name = section_variants()["env"].default if suite is None else suite.value
    if protocol is None or (preset := suite_presets().get(f"{name}-{protocol.value}")) is None:
        return
    for path, (value, _) in read_yaml_file(preset).items():
        merged.setdefault(path, Given(value, f"evaluation.protocol {protocol.value}"))


def _check_parts(sources: Sequence[Source]) -> None:
    """Refuse a suite or another part that cannot be loaded, whose settings are therefore unknown."""
    broken = {("env", "suite"): SUITES.broken, **{(name, "kind"): parts.broken for name, parts in REGISTRIES.items()}}
    for path, reasons in broken.items():
        chosen = next((source[key] for source in reversed(sources) for key in (path, path[:1]) if key in source), None)
        if chosen is not None and (reason := reasons.get(str(chosen.value))) is not None:
            raise SettingsError(f"{'.'.join(path)}: {reason} ({chosen.origin})")
    for source in sources:
        for key, (_, origin) in source.items():
            if key[:1] == ("logging",) and (reason := TRACKERS.broken.get(".".join(key[1:2]))) is not None:
                raise SettingsError(f"{'.'.join(key[:2])}: {reason} ({origin})")


def _check_names(source: Source) -> None:
    """Check that every value is for a setting and not for a section."""
    for path, (_, origin) in source.items():
        dotted = ".".join(path)
        if is_section(path):
            raise SettingsError(f"{dotted}: is a section of settings and takes no value ({origin})")
        if find_key(path) is None:
            raise SettingsError(f"{dotted}: no such setting ({origin}){close_setting(dotted)}")


def _one_line(detail: ErrorDetails, merged: Source) -> str:
    """Describe what pydantic refused."""
    path, chosen = _located(detail["loc"])
    message = " ".join(detail["msg"].removeprefix("Value error, ").split())
    section = next((name for end in range(len(path), 0, -1) if (name := ".".join(path[:end])) in section_variants()), None)
    if section is not None and (about := _about_variant(detail, path, section, chosen, merged)) is not None:
        return about
    key = next((path[:end] for end in range(len(path), 0, -1) if _is_leaf(path[:end])), None)
    if key is None:  # the error is about several settings: name the origin of each
        named = [(name, setting.path) for setting in setting_keys() for name in _names_of(setting.path) if _is_named(name, path, message)]
        origins = sorted(f"{'.'.join(name)}: {_origin(setting, merged)}" for name, setting in named)
        return f"{message} ({'; '.join(origins) or 'settings'})"
    if detail["type"] == "missing":
        return f"{'.'.join(key)}: is missing, and has no default"
    # In a sweep, the key is the setting that is swept: the error names a part of a union of lists and rules.
    where = ": ".join(path[:2]) if path[0] == "sweep" else ".".join(key)
    value = repr(detail["input"])
    value = value if len(value) <= _MAX_CHARACTERS else f"{value[: _MAX_CHARACTERS - 3]}..."
    return f"{where}: {_wanted(key, detail, message, is_whole=key == path)}, not {value} ({_origin(key, merged)})"


def _located(location: Iterable[int | str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the path of a pydantic location without the tags of variants, and the variants by section."""
    path: list[str] = []
    chosen: dict[str, str] = {}
    for part in map(str, location):
        section = ".".join(path)
        if section in section_variants() and section not in chosen and part in section_variants()[section].models:
            chosen[section] = part
        else:
            path.append(part)
    return tuple(path), chosen


def _about_variant(detail: ErrorDetails, path: tuple[str, ...], section: str, chosen: Mapping[str, str], merged: Source) -> str | None:
    """Describe a wrong choice of a variant, or a setting that the chosen variant does not have; None for any other error."""
    variants = section_variants()[section]
    chooser = f"{section}.{variants.discriminator}"
    origin = _origin(tuple(chooser.split(".")), merged)
    if detail["type"] == "union_tag_invalid":
        given = detail["input"].get(variants.discriminator)
        return f"{chooser}: should be {_listed(variants.models)}, not {given!r} ({origin}){close_match(str(given), variants.models)}"
    if detail["type"] == "extra_forbidden" and section in chosen:
        key = find_key(path)
        owners = f"{chooser} {_listed(key.variants)} has it" if key is not None else "no variant has it"
        origins = f"{_origin(path, merged)}; {chooser}: {origin}"
        return f"{'.'.join(path)}: does not apply to {chooser} {chosen[section]}; {owners} ({origins})"
    return None


def _listed(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _is_leaf(path: tuple[str, ...]) -> bool:
    return find_key(path) is not None and not is_section(path)


def _names_of(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the setting's path and, if it chooses a variant, that of its section."""
    yield path
    variants = section_variants().get(".".join(path[:-1]))
    if variants is not None and path[-1] == variants.discriminator:
        yield path[:-1]


def _is_named(path: tuple[str, ...], section: tuple[str, ...], message: str) -> bool:
    """Whether a message about a section names the setting at ``path``, by its own name or, about the whole run, by its dotted key."""
    if section and path[: len(section)] != section:
        return False
    word = path[-1] if section else ".".join(path)
    return re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", message) is not None


def _origin(path: tuple[str, ...], merged: Source) -> str:
    return merged[path].origin if path in merged else "default"


def _wanted(path: tuple[str, ...], detail: ErrorDetails, message: str, *, is_whole: bool) -> str:
    """Say what the setting accepts: the description of its type, or the validator's message for anything finer."""
    key, context = find_key(path), detail.get("ctx") or {}
    if key is not None and (detail["type"].endswith(("_type", "_parsing")) or (is_whole and detail["type"] in _BOUNDS)):
        return f"should be {key.type_text}{_number_forms(key, detail['input'])}"
    if detail["type"] == "union_tag_invalid":
        return f"{context['discriminator']} should be one of {context['expected_tags']}"
    if detail["type"] == "too_short":
        return "should not be empty"
    if detail["type"] == "string_pattern_mismatch":
        is_user_code = context.get("pattern") == USER_CODE
        return "should be module:function" if is_user_code else "should be letters, digits and . - _, with a letter or digit first"
    message = message.removeprefix("Input ")
    return message[:1].lower() + message[1:]


def _number_forms(key: SettingKey, value: object) -> str:
    """Return examples of what is accepted if ``value`` was meant as a number: 10M, 10,000, 2m."""
    if not {"integer", "number"} & key.kinds or not isinstance(value, str) or _NUMBER_WITH_UNIT.fullmatch(value) is None:
        return ""
    with suppress(ValueError):
        float(value)
        return ""  # a number, but not of this kind
    return ", such as 120 or 0.5" if key.path[-1].endswith("_seconds") else ", such as 2000000 or 2e6"
