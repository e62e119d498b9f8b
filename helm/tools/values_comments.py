"""Reads the chart's values.yaml as a document: every value with its path, its default and its comment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHART = Path(__file__).parents[1] / "herd"
SCHEMA_MARK = "@schema "
"""Marks a line for the schema at the end of a comment: one line of YAML, or a word that values_schema.py knows."""


class Value(NamedTuple):
    """One key of values.yaml."""

    path: tuple[str, ...]
    default: Any
    comment: str
    """The comment, on one line; empty if there is none."""
    schema: str
    """The contents of its ``@schema`` line; empty if there is none."""
    is_section: bool
    """Whether its keys are values of their own."""


def read_values(file: Path = CHART / "values.yaml") -> list[Value]:
    """Return every value; sections come before their values."""
    text = file.read_text()
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(node, yaml.MappingNode)
    return list(_values(node, (), text.splitlines()))


def _values(node: yaml.MappingNode, prefix: tuple[str, ...], lines: Sequence[str]) -> Iterator[Value]:
    for key, content in node.value:
        path = (*prefix, str(key.value))
        comment, schema = _comment_above(lines, key.start_mark.line)
        is_section = isinstance(content, yaml.MappingNode) and bool(content.value) and not schema
        yield Value(path, _plain(content), comment, schema, is_section)
        if is_section:
            yield from _values(content, path, lines)


def _plain(node: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    finally:
        loader.dispose()


def _comment_above(lines: Sequence[str], line: int) -> tuple[str, str]:
    above: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        above.insert(0, lines[line].lstrip().removeprefix("#").strip())
    schema = next((text.removeprefix(SCHEMA_MARK) for text in above if text.startswith(SCHEMA_MARK)), "")
    return " ".join(text for text in above if not text.startswith(SCHEMA_MARK)), schema
