"""Run files: YAML with one mapping, without duplicate keys, and of limited size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml

from herd.config.errors import Layer, SettingsError, close_match, plain_integer
from herd.config.experiments import shipped_experiments
from herd.config.keys import find_key, is_section

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 1 << 20
MAX_VALUES = 100_000
"""Aliases are counted each time they are used: nine lines of nine aliases each would be a billion values. A resolved run has 300."""


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


def read_yaml_file(file: Path) -> Layer:
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
        raise SettingsError(
            f"{file}: no such file{close_match(str(file), siblings) or close_match(file.stem, shipped_experiments())}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read: {_reason(error)}") from None
    if len(data) > MAX_BYTES:
        raise SettingsError(f"{file}: larger than {MAX_BYTES} bytes: not a settings file")
    try:
        content = parse_yaml(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"{file}{_line_of(error)}: not valid YAML: {_problem(error)}") from None
    layer = Layer()
    if content is None:  # {} is allowed: it keeps all defaults, as the chart's default experiment does
        raise SettingsError(f"{file}: empty: it holds no settings")
    if not isinstance(content, dict):
        raise SettingsError(f"{file}: must be a mapping of settings, not a {type(content).__name__}")
    _walk(content, (), layer, str(file))
    return layer


def read_mapping(content: Mapping[str, object], origin: str) -> Layer:
    """Read settings from a mapping in Python: by section as in a file, by dotted key (``{"learner.batch_size": 64}``), or both.

    Raises:
        SettingsError: a boolean for a setting that does not take one.

    """
    layer = Layer()
    for name, value in content.items():
        nested: Any = dict(value) if isinstance(value, Mapping) else value
        for part in reversed(name.split(".")):
            nested = {part: nested}
        _walk(nested, (), layer, origin)
    return layer


def _walk(content: dict[Any, Any], prefix: tuple[str, ...], layer: Layer, origin: str) -> None:
    for name, value in content.items():
        path = (*prefix, str(name))
        if isinstance(value, dict) and find_key(path) is None:
            if not value and not is_section(path):
                layer.set(path, value, origin)
            _walk(value, path, layer, origin)
        elif value is None and is_section(path):
            continue  # `learner:` with nothing under it
        else:
            key = find_key(path)
            if key is not None and isinstance(value, bool) and "boolean" not in key.kinds:
                # The model's lax mode would accept true as 1.
                raise SettingsError(f"{key.dotted}: should be {key.type_text}, not {str(value).lower()} ({origin})")
            layer.set(path, value if key is None else plain_integer(key, value), origin)


class _StrictLoader(yaml.SafeLoader):
    """The safe loader, but a duplicate key is an error instead of a silent replacement."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            name = str(key_node.value)
            if name in seen and name != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"{name} is given twice", key_node.start_mark)
            seen.add(name)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


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


def _line_of(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}" if mark is not None else ""


def _problem(error: yaml.YAMLError) -> str:
    return " ".join(str(getattr(error, "problem", None) or error).split())


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "not UTF-8 text"
