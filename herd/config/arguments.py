"""The grammar of settings on the command line: ``--section.key value``, ``--section.key=value``, ``--flag``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from herd.config.errors import FALSE_WORDS, TRUE_WORDS, Layer, SettingsError, close_setting, parse_text
from herd.config.keys import SettingKey, find_key, setting_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

_ORIGIN = "command line"


def parse_overrides(words: Sequence[str]) -> Layer:
    """Read the settings given on a command line. A repeated list setting grows; any other setting takes the last value.

    Raises:
        SettingsError: an unknown setting, a setting without a value, or a word that belongs to no setting.

    """
    files, layer = parse_arguments(words)
    if files:
        raise SettingsError(f"{files[0]}: unexpected word (command line): settings are given as --section.key value")
    return layer


def split_arguments(words: Sequence[str], *, file_option: str | None = None) -> tuple[list[Path], list[str]]:
    """Separate run files from settings, whose words are left unchanged.

    Args:
        words: ``FILE [FILE ...] [--section.key value ...]`` in any order.
        file_option: name of the option for a file (``--config`` of the services). Without it, every word that is not the value of a
            setting is a file.

    Raises:
        SettingsError: as ``parse_overrides``.

    """
    files: list[Path] = []
    overrides: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        name, equals, inline = word.partition("=")
        if file_option is not None and name == file_option:
            position += 1
            if not equals:
                if position >= len(words):
                    raise SettingsError(f"{file_option}: needs a file (command line)")
                inline = words[position]
                position += 1
            files.append(Path(inline))
            continue
        length = _option_length(words, position)
        if length == 0:
            if file_option is not None:
                raise SettingsError(f"{word}: unexpected word (command line): run files are given as {file_option} FILE")
            files.append(Path(word))
            position += 1
        else:
            overrides.extend(words[position : position + length])
            position += length
    return files, overrides


def take_section(words: Sequence[str], section: str) -> tuple[list[str], list[str]]:
    """Separate the settings of one section, ``--section.key value``, from all other words; both lists keep their order.

    Raises:
        SettingsError: a setting that the section does not have, or one without a value.

    """
    settings: list[str] = []
    others: list[str] = []
    position = 0
    while position < len(words):
        is_setting = words[position].startswith(f"--{section}.")
        end = position + (_option_length(words, position) if is_setting else 1)
        (settings if is_setting else others).extend(words[position:end])
        position = end
    return settings, others


def parse_arguments(words: Sequence[str]) -> tuple[list[Path], Layer]:
    """As ``split_arguments``, with the settings read into a layer."""
    files, overrides = split_arguments(words)
    texts: dict[tuple[str, ...], list[str]] = {}
    position = 0
    while position < len(overrides):
        length = _option_length(overrides, position)
        key, inline = _option(overrides[position])
        text = inline if inline is not None else (overrides[position + 1] if length > 1 else "true")
        texts.setdefault(key.path, []).append(text)
        position += length
    layer = Layer()
    for path, values in texts.items():
        found = find_key(path)
        assert found is not None
        layer.set(path, parse_text(found, values), _ORIGIN)
    return files, layer


def _option_length(words: Sequence[str], position: int) -> int:
    """Return the number of words of the option at ``position``, including its value; 0 if there is no option."""
    if not words[position].startswith("-"):
        return 0
    key, inline = _option(words[position])
    if inline is not None:
        return 1
    value = words[position + 1] if position + 1 < len(words) else None
    if "boolean" in key.kinds:
        return 2 if value is not None and value.lower() in TRUE_WORDS | FALSE_WORDS else 1
    if value is None or value.startswith("--"):
        raise SettingsError(f"{key.dotted}: needs a value (command line): {key.type_text}")
    return 2


def _option(word: str) -> tuple[SettingKey, str | None]:
    name, equals, value = word.partition("=")
    dotted = name.removeprefix("--")
    key = find_key(tuple(dotted.split("."))) if name.startswith("--") else None
    if key is None:
        known = (key.dotted for key in setting_keys())
        raise SettingsError(f"{name}: no such option (command line){close_setting(dotted, known, prefix='--')}")
    return key, value if equals else None
