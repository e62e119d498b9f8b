"""The settings of a run in its directory: config.yaml of the newest start, and those of every start in starts.jsonl."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from herd.config.loading import dump_settings
from herd.config.loading.sources import MAX_BYTES, parse_yaml
from herd.files import MAX_JSON_BYTES, FileError, append_line, read_file, replace_file
from herd.run.paths import CONFIG, STARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from herd.config.run import RunSettings

MAX_STARTS_BYTES = 4 << 20
"""Size of starts.jsonl, about 500 starts, at which the older half is dropped, except for the first start."""
OF_ONE_START = frozenset({"resume", "run_dir"})
"""Settings that do not affect learning."""


class Change(NamedTuple):
    """A setting that has changed since the previous start."""

    key: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.key} {_shown(self.before)} -> {_shown(self.now)}"


def changed_settings(directory: Path, settings: RunSettings) -> list[Change]:
    """Return the changes since the run's newest start; empty if there was none, or its config.yaml cannot be read.

    Settings that exist in only one of the two are left out: they depend on the version or on the variant of a section.
    """
    before, now = flat_values(_read(directory)), flat_values(_as_kept(settings))
    return [Change(key, before[key], now[key]) for key in now if key in before and before[key] != now[key] and key not in OF_ONE_START]


def keep_settings(directory: Path, settings: RunSettings) -> Callable[[], None]:
    """Replace config.yaml, and add a line to starts.jsonl. Returns a function that takes both back, for a start that is refused.

    The line: ``started`` (UTC), ``version`` of Herd, ``changed`` (key -> [before, now]) and all ``settings``.

    Raises:
        OSError: the directory cannot be written; config.yaml is either unchanged or the new one.

    """
    changed, config, history = changed_settings(directory, settings), directory / CONFIG, directory / STARTS
    before = None
    with suppress(OSError):
        before = [bytes(read_file(config, MAX_BYTES))]
    num_bytes = history.stat().st_size if history.exists() else 0
    # `resume` concerns only this start, not later readers (evaluate, watch).
    replace_file(config, dump_settings(settings.model_copy(update={"resume": False})))
    record = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": version("herd-rl"),
        "changed": {change.key: [change.before, change.now] for change in changed},
        "settings": _as_kept(settings),
    }
    append_line(history, json.dumps(record))
    if history.stat().st_size > MAX_STARTS_BYTES:
        lines = bytes(read_file(history, MAX_JSON_BYTES)).splitlines(keepends=True)
        replace_file(history, lines[:1] + lines[len(lines) // 2 :])
        num_bytes = history.stat().st_size  # a line too many is harmless

    def take_back() -> None:
        if before is None:
            config.unlink()
        else:
            replace_file(config, before)
        os.truncate(history, num_bytes)

    return take_back


def _as_kept(settings: RunSettings) -> dict[str, Any]:
    return settings.model_copy(update={"resume": False}).model_dump(mode="json")


def read_config(file: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a run's config.yaml, and its settings without checking them, so that runs of other versions can be shown.

    Raises:
        FileError: the file cannot be read, is not UTF-8 text, not YAML, or not a mapping; one line.

    """
    try:
        text = read_file(file, MAX_BYTES).decode()
        found = parse_yaml(text)
    except OSError as error:
        raise FileError(f"{file}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{file}: cannot be read: not UTF-8 text") from error
    except yaml.YAMLError as error:
        raise FileError(f"{file}: not valid YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(found, dict):
        raise FileError(f"{file}: holds no settings")
    return text, found


def _read(directory: Path) -> dict[str, Any]:
    try:
        return read_config(directory / CONFIG)[1]
    except FileError:
        return {}


def flat_values(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings by dotted key. Mappings that are values (of ``sweep``, ``kwargs``) are also split."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flat_values(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list | bool) or value is None else str(value)
