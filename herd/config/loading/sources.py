"""The sources of settings: run files, the environment, command lines and mappings in Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from herd.components.settings import FALSE_WORDS, TRUE_WORDS
from herd.components.user_code import SPACES_VARIABLE
from herd.config.encryption_keys import CURVE_VARIABLES, RUN_TOKEN_VARIABLE
from herd.config.errors import SettingsError, close_match
from herd.config.experiments import shipped_experiments
from herd.config.loading.keys import (
    ENVIRONMENT_PREFIX,
    SettingKey,
    close_setting,
    find_key,
    is_section,
    setting_keys,
)
from herd.files import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_BYTES = 1 << 20
MAX_VALUES = 100_000
"""Aliases are counted each time they are used: nine lines of nine aliases each would be a billion values. A resolved run has 300."""
_MAX_INTEGER_CHARACTERS = 400
"""Longest integer in YAML; 2^64 in binary has 66 characters, the largest float 309."""
_OF_KUBERNETES = re.compile(
    rf"{ENVIRONMENT_PREFIX}(\w+_)?(SERVICE_HOST=.*|SERVICE_PORT(_\w+)?=\d+|PORT(_\d+_(TCP|UDP|SCTP))?=\w+://.*"
    r"|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)=.*)"
)
"""Variables that Kubernetes sets in every pod for each service of its namespace, such as those of a release named herd."""
_COMMAND_LINE = "command line"
_INTEGER_IN_SCIENTIFIC_NOTATION = re.compile(r"\d+(\.\d+)?[eE]\+?\d+")


class Given(NamedTuple):
    """A value, and where it came from."""

    value: Any
    origin: str


Source = dict[tuple[str, ...], Given]
"""The values of one source, or of several that were merged, by the path of the setting."""


# --- Command lines: ``--section.key value``, ``--section.key=value``, ``--flag``.


def split_arguments(words: Sequence[str], *, file_option: str | None = None) -> tuple[list[Path], list[str]]:
    """Separate run files from settings, whose words are left unchanged.

    Args:
        words: ``FILE [FILE ...] [--section.key value ...]`` in any order.
        file_option: name of the option for a file (``--config`` of the services). Without it, every word that is not the value of a
            setting is a file.

    Raises:
        SettingsError: an unknown setting, a setting without a value, or a word that is neither.

    """
    files: list[Path] = []
    overrides: list[str] = []
    rest = list(words)
    while rest:
        name, equals, inline = rest[0].partition("=")
        if name == file_option:
            if not equals and len(rest) < 2:
                raise SettingsError(f"{file_option}: needs a file ({_COMMAND_LINE})")
            files.append(Path(inline if equals else rest[1]))
            del rest[: 1 if equals else 2]
        elif not name.startswith("-"):
            if file_option is not None:
                raise SettingsError(f"{name}: unexpected word ({_COMMAND_LINE}): run files are given as {file_option} FILE")
            files.append(Path(rest.pop(0)))
        else:
            overrides += _take_option(rest)[2]
    return files, overrides


def take_section(words: Sequence[str], section: str) -> tuple[list[str], list[str]]:
    """Separate the settings of one section, ``--section.key value``, from all other words; both lists keep their order.

    Raises:
        SettingsError: a setting that the section does not have, or one without a value.

    """
    settings: list[str] = []
    others: list[str] = []
    rest = list(words)
    while rest:
        if rest[0].startswith(f"--{section}."):
            settings += _take_option(rest)[2]
        else:
            others.append(rest.pop(0))
    return settings, others


def read_arguments(words: Sequence[str]) -> Source:
    """Read settings from a command line without files. A repeated list setting grows; any other setting takes the last value.

    Raises:
        SettingsError: as `split_arguments`.

    """
    texts: dict[SettingKey, list[str]] = {}
    rest = list(words)
    while rest:
        if not rest[0].startswith("-"):
            raise SettingsError(f"{rest[0]}: unexpected word ({_COMMAND_LINE}): settings are given as --section.key value")
        key, text, _ = _take_option(rest)
        texts.setdefault(key, []).append(text)
    return {key.path: Given(_parse_text(key, values), _COMMAND_LINE) for key, values in texts.items()}


def _take_option(words: list[str]) -> tuple[SettingKey, str, list[str]]:
    """Remove the first option from ``words``; return its setting, the text of its value, and the removed words."""
    name, equals, inline = words[0].partition("=")
    key = find_key(tuple(name[2:].split("."))) if name.startswith("--") else None
    if key is None:
        raise SettingsError(f"{name}: no such option ({_COMMAND_LINE}){close_setting(name.removeprefix('--'), prefix='--')}")
    following = words[1] if len(words) > 1 else None
    text, length = inline, 1
    if not equals:
        if "boolean" in key.kinds and (following is None or following.lower() not in TRUE_WORDS | FALSE_WORDS):
            text = "true"
        elif following is None or following.startswith("--"):
            raise SettingsError(f"{key.dotted}: needs a value ({_COMMAND_LINE}): {key.type_text}")
        else:
            text, length = following, 2
    taken = words[:length]
    del words[:length]
    return key, text, taken


def _parse_text(key: SettingKey, texts: Sequence[str]) -> object:
    """Read a value from words of a command line or of the environment.

    ``null`` is None where the setting allows it. A list is JSON (``["pong"]``), comma-separated, or several words; a mapping is JSON.
    Anything else stays text, which validation converts or refuses.
    """
    if "list" in key.kinds:
        return [item for text in texts for item in _list_items(text.strip())]
    text = texts[-1]
    if text.lower() == "null" and "null" in key.kinds:
        return None
    if "mapping" in key.kinds:
        with suppress(ValueError):
            return parse_json(text)
    return _plain_integer(key, text)


def _list_items(text: str) -> list[Any]:
    if text.startswith("["):
        with suppress(ValueError):
            items = parse_json(text)
            return list(items) if isinstance(items, list) else [text]
        return [text]
    return [item.strip() for item in text.split(",")] if text else []


def _plain_integer(key: SettingKey, value: object) -> object:
    """``"2e6"`` as 2000000 for an integer setting (YAML and the command line give text); everything else unchanged."""
    if "integer" in key.kinds and isinstance(value, str) and _INTEGER_IN_SCIENTIFIC_NOTATION.fullmatch(value.strip()):
        number = float(value)
        return int(number) if number.is_integer() else value
    return value


# --- The environment.


def read_environment(environ: Mapping[str, str]) -> Source:
    """Read the settings named by environment variables: ``HERD_LEARNER__BATCH_SIZE`` is ``learner.batch_size``.

    Raises:
        SettingsError: a ``HERD_`` variable that is neither a setting nor a key.

    """
    names = {key.environment_name: key for key in setting_keys()}
    source: Source = {}
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in CURVE_VARIABLES | {RUN_TOKEN_VARIABLE, SPACES_VARIABLE}:
            continue
        if name not in names and _OF_KUBERNETES.fullmatch(f"{name}={environ[name]}"):
            continue  # keys are not settings, so nothing that writes settings can write keys
        key = names.get(name)
        if key is None:
            raise SettingsError(f"{name}: no such setting (environment){close_match(name, [*names, *sorted(CURVE_VARIABLES)])}")
        source[key.path] = Given(_parse_text(key, [environ[name]]), f"environment {name}")
    return source


# --- Run files: YAML with one mapping, without duplicate keys, and of limited size.


def read_yaml_file(file: Path) -> Source:
    """Read the settings in ``file``.

    Raises:
        SettingsError: the file is missing, unreadable, empty, not YAML, or not a mapping of settings.

    """
    try:
        with file.open("rb") as stream:  # it may be a pipe, whose size is unknown
            data = stream.read(MAX_BYTES + 1)
        text = data.decode()
    except FileNotFoundError:
        siblings = [str(other) for other in sorted(file.parent.glob("*.y*ml"))] if file.parent.is_dir() else []
        hint = close_match(str(file), siblings) or close_match(file.stem, shipped_experiments())
        raise SettingsError(f"{file}: no such file{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else "not UTF-8 text"
        raise SettingsError(f"{file}: cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise SettingsError(f"{file}: larger than {MAX_BYTES} bytes: not a settings file")
    try:
        content = parse_yaml(text)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        line = "" if mark is None else f":{mark.line + 1}"
        raise SettingsError(f"{file}{line}: not valid YAML: {' '.join(str(problem or error).split())}") from None
    if content is None:  # {} is allowed: it keeps all defaults, as the chart's default experiment does
        raise SettingsError(f"{file}: empty: it holds no settings")
    if not isinstance(content, dict):
        raise SettingsError(f"{file}: must be a mapping of settings, not a {type(content).__name__}")
    return dict(_leaves(content, (), str(file)))


def read_mapping(content: Mapping[str, object], origin: str) -> Source:
    """Read settings from a mapping in Python: by section as in a file, by dotted key (``{"learner.batch_size": 64}``), or both.

    Raises:
        SettingsError: a boolean for a setting that does not take one.

    """
    source: Source = {}
    for name, value in content.items():
        *sections, last = name.split(".")
        source |= dict(_leaves({last: dict(value) if isinstance(value, Mapping) else value}, tuple(sections), origin))
    return source


def _leaves(content: Mapping[Any, Any], prefix: tuple[str, ...], origin: str) -> Iterator[tuple[tuple[str, ...], Given]]:
    """Yield the settings in a nested mapping. A name that is no setting is yielded like one, to be refused with its origin."""
    for name, value in content.items():
        path = (*prefix, str(name))
        inside = is_section(path)
        key = find_key(path)
        if isinstance(value, dict) and (inside or (key is None and value)):
            yield from _leaves(value, path, origin)
        elif key is None or (inside and value is None):
            if not inside or value is not None:  # `learner:` with nothing under it holds no settings
                yield path, Given(value, origin)
        elif isinstance(value, bool) and "boolean" not in key.kinds:
            # The model's lax mode would accept true as 1.
            raise SettingsError(f"{key.dotted}: should be {key.type_text}, not {str(value).lower()} ({origin})")
        else:
            yield key.path, Given(_plain_integer(key, value), origin)


def parse_yaml(text: str) -> Any:
    """Return the contents of a YAML document, in plain types only.

    Raises:
        yaml.YAMLError: not YAML, a duplicate key, an unreadable value, a value that contains itself, nested too deeply, or too large.

    """
    loader = _StrictLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _num_values(node, {}) > MAX_VALUES:
            raise yaml.YAMLError(f"more than {MAX_VALUES} values, with aliases written out")
        return loader.construct_document(node)
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # An impossible date, an integer of thousands of digits, or a tag whose constructor expects another type.
        raise yaml.YAMLError(f"a value cannot be read: {str(error)[:200]}") from error
    finally:
        loader.dispose()


class _StrictLoader(yaml.SafeLoader):
    """The safe loader, but a duplicate key is an error instead of a silent replacement, and integers are of limited length."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        # Python limits decimal digits only, but not those of 0x..., 0b... and 1:59:59, and then fails to print the number.
        if len(node.value) > _MAX_INTEGER_CHARACTERS:
            raise ValueError(f"an integer of {len(node.value)} characters")
        value: int = super().construct_yaml_int(node)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            name = str(key_node.value)
            if name in seen and name != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"{name} is given twice", key_node.start_mark)
            seen.add(name)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_yaml_int)


def _num_values(node: yaml.Node, known: dict[int, int | None]) -> int:
    """Count ``node`` and all scalars and collections below it, each as often as it is used.

    ``known`` holds finished counts by id, and None for a node that is being counted.
    """
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = None
        children = [child for pair in node.value for child in pair] if isinstance(node, yaml.MappingNode) else node.value
        known[id(node)] = 1 + sum(_num_values(child, known) for child in children)
    count = known[id(node)]
    if count is None:
        raise yaml.constructor.ConstructorError(None, None, "a value contains itself", node.start_mark)
    return count
