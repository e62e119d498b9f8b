"""Run files: YAML, one mapping, no key twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from herd.config.experiments import shipped_experiments
from herd.config.keys import find_key, is_section
from herd.config.layers import Layer, SettingsError, close_match, plain_integer

if TYPE_CHECKING:
    from pathlib import Path


def read_yaml_file(file: Path) -> Layer:
    """Read the settings in ``file``.

    Raises:
        SettingsError: no such file, unreadable, not YAML, or not a mapping of settings.

    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        siblings = [str(other) for other in sorted(file.parent.glob("*.y*ml"))] if file.parent.is_dir() else []
        raise SettingsError(
            f"{file}: no such file{close_match(str(file), siblings) or close_match(file.stem, shipped_experiments())}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read: {_reason(error)}") from None
    try:
        content = yaml.load(text, Loader=_StrictLoader)  # noqa: S506  a subclass of SafeLoader
    except yaml.YAMLError as error:
        raise SettingsError(f"{file}{_line_of(error)}: not valid YAML: {_problem(error)}") from None
    layer = Layer()
    if content is None:
        return layer
    if not isinstance(content, dict):
        raise SettingsError(f"{file}: must be a mapping of settings, not a {type(content).__name__}")
    _walk(content, (), layer, str(file))
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
                # The model's lax mode would take true for 1.
                raise SettingsError(f"{key.dotted}: should be {key.type_text}, not {str(value).lower()} ({origin})")
            layer.set(path, value if key is None else plain_integer(key, value), origin)


class _StrictLoader(yaml.SafeLoader):
    """The safe loader, except that a key given twice is an error instead of a silent replacement."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            name = str(key_node.value)
            if name in seen and name != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"{name} is given twice", key_node.start_mark)
            seen.add(name)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _line_of(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}" if mark is not None else ""


def _problem(error: yaml.YAMLError) -> str:
    return " ".join(str(getattr(error, "problem", None) or error).split())


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "not UTF-8 text"
