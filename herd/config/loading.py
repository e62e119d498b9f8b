"""Where settings come from: defaults < YAML files in order < environment < command line.

Each source is read into a layer that remembers where every value came from, so that whatever is wrong
can be said in one line: the key, the fact, the place, and the setting that was probably meant.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from herd.config.arguments import parse_overrides
from herd.config.curve_keys import CURVE_VARIABLES
from herd.config.experiments import find_run_file
from herd.config.keys import ENVIRONMENT_PREFIX, find_key, is_section, setting_keys
from herd.config.layers import Layer, SettingsError, close_match, parse_text
from herd.config.settings import RunSettings
from herd.config.yaml_files import read_yaml_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

__all__ = ["SettingsError", "dump_settings", "environment_layer", "load_settings", "settings_json_schema"]


def load_settings(files: Sequence[Path], overrides: Sequence[str], environ: Mapping[str, str]) -> RunSettings:
    """Load the settings of a run.

    Args:
        files: YAML files or names of shipped experiments, deep-merged in this order; a list replaces a list.
        overrides: command-line words such as ``["--learner.batch_size", "64", "--resume"]``.
        environ: process environment; every name that starts with ``HERD_`` must be a setting, or hold a CURVE key.

    Raises:
        SettingsError: one line that names the key or file, where it came from, and a close match.

    """
    layers = [*(read_yaml_file(find_run_file(file)) for file in files), environment_layer(environ), parse_overrides(overrides)]
    for layer in layers:
        _check_names(layer)
    construct: Callable[..., RunSettings] = _LayeredRunSettings  # whose fields do not include `layers`
    try:
        resolved = construct(layers=layers)
    except ValidationError as error:
        raise SettingsError(_one_line(error, layers)) from None
    # A plain RunSettings, so that it compares equal to one built in code.
    return RunSettings.model_construct(resolved.model_fields_set, **dict(resolved))


def dump_settings(settings: RunSettings) -> str:
    """YAML with every setting spelled out; loads back equal."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def settings_json_schema() -> dict[str, Any]:
    """JSON schema (2020-12) of a run file, unknown keys forbidden."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **RunSettings.model_json_schema()}


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """Read the settings named by environment variables: ``HERD_LEARNER__BATCH_SIZE`` is ``learner.batch_size``.

    Raises:
        SettingsError: a ``HERD_`` name that is neither a setting nor a key's.

    """
    names = {key.environment_name: key for key in setting_keys()}
    layer = Layer()
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in CURVE_VARIABLES:
            continue  # keys are no settings: nothing that writes settings down can write them
        key = names.get(name)
        if key is None:
            raise SettingsError(f"{name}: no such setting (environment){close_match(name, [*names, *sorted(CURVE_VARIABLES)])}")
        layer.set(key.path, parse_text(key, [environ[name]]), f"environment {name}")
    return layer


class _LayeredRunSettings(RunSettings, BaseSettings):
    """``RunSettings`` that pydantic-settings fills from layers, the last one strongest."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003  replaced: it cannot report unknown names
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  settings never come from a hidden file
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  no setting is a secret
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        layers: list[Layer] = getattr(init_settings, "init_kwargs")["layers"]  # noqa: B009  not on the base class
        return tuple(_LayerSource(settings_cls, layer) for layer in reversed(layers))


class _LayerSource(PydanticBaseSettingsSource):
    """One layer, as pydantic-settings wants it."""

    def __init__(self, settings_cls: type[BaseSettings], layer: Layer) -> None:
        super().__init__(settings_cls)
        self._layer = layer

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002  the base class's signature
        return self._layer.values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self._layer.values


def _check_names(layer: Layer) -> None:
    """Every leaf of the layer is a setting, and no section stands where a value should (or the reverse)."""
    for path, origin in layer.origins.items():
        if find_key(path) is not None:
            continue
        dotted = ".".join(path)
        if is_section(path):
            raise SettingsError(f"{dotted}: a section of settings, not a value ({origin})")
        raise SettingsError(f"{dotted}: no such setting ({origin}){close_match(dotted, [key.dotted for key in setting_keys()])}")


def _one_line(error: ValidationError, layers: Sequence[Layer]) -> str:
    details = error.errors(include_url=False, include_context=False)
    first = details[0]
    more = f"; and {len(details) - 1} more" if len(details) > 1 else ""
    path = tuple(str(part) for part in first["loc"])
    message = " ".join(first["msg"].removeprefix("Value error, ").split())
    key = next((path[:end] for end in range(len(path), 0, -1) if find_key(path[:end])), None)
    if key is not None:
        return f"{'.'.join(key)}: {_wanted(key, first, message)}, not {_shown(first)} ({_origin_of(key, layers)}){more}"
    # A rule between several settings: say where those that it names came from.
    named = [setting for setting in setting_keys() if _names(setting.path, path, message)]
    origins = {f"{setting.dotted}: {_origin_of(setting.path, layers)}" for setting in named}
    return f"{message} ({'; '.join(sorted(origins)) or 'settings'}){more}"


def _names(path: tuple[str, ...], section: tuple[str, ...], message: str) -> bool:
    if section and path[: len(section)] != section:
        return False
    word = path[-1] if section else ".".join(path)
    return re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", message) is not None


def _origin_of(path: tuple[str, ...], layers: Sequence[Layer]) -> str:
    return next((layer.origins[path] for layer in reversed(layers) if path in layer.origins), "default")


def _shown(detail: ErrorDetails) -> str:
    """Show the offending value, short enough for one line."""
    limit = 60
    text = repr(detail["input"])
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _wanted(path: tuple[str, ...], detail: ErrorDetails, message: str) -> str:
    """Say what the setting takes: its own words for a wrong type, the validator's for anything finer."""
    key = find_key(path)
    if key is not None and detail["type"].endswith(("_type", "_parsing")):
        return f"should be {key.type_text}"
    message = message.removeprefix("Input ")
    return message[:1].lower() + message[1:]
