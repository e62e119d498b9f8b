"""Generates values.schema.json: ``python -m helm.tools.values_schema > helm/herd/values.schema.json``.

Types come from the defaults in values.yaml and its ``@schema`` lines; the experiment's from the settings model. The schema is draft-07,
because Helm 3.17 silently ignores keywords of later drafts. Unknown keys are refused, except inside Kubernetes' own objects.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from herd.config.loading import settings_json_schema
from herd.topology import COMPONENT_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHART = Path(__file__).parents[1] / "herd"
SCHEMA_MARK = "@schema "
"""Marks a line for the schema at the end of a comment: one line of YAML, or a word for `_schema_of`."""
EXPERIMENT = "experiment"
DEFAULTS = "defaults"
COMPONENTS = tuple(name.replace("-replica", "Replica") for name in COMPONENT_NAMES)
"""Their sections in values.yaml."""
NOT_OF = {
    "persistence": {"actor", "paramserver", "paramserverReplica", "inference", "population"},
    "podDisruptionBudget": {"actor", "evaluator"},
}
"""Defaults that some components do not have."""
ACTOR_GROUPS = "actor-groups"
NUMBER = "^[-+]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?$"
WHOLE = "^[-+]?([0-9]+|[0-9]*\\.?[0-9]+[eE]\\+?[0-9]+)$"
GROUP_NAME = "^[a-z]([-a-z0-9]{0,18}[a-z0-9])?$"
"""With 32 characters of the release and -actor-, a name of this length fits into the 63 characters of a label."""
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_QUANTITY = {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?([kMGTPE]|[KMGTPE]i)?$"}
_PODS = {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+%$"}
BY_NAME: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("annotations", "commonLabels", "labels", "nodeSelector", "workloadLabels"), _TEXTS),
    **dict.fromkeys(("scratch", "sharedMemory", "size"), _QUANTITY),
    **dict.fromkeys(("maxSurge", "maxUnavailable"), _PODS),
    "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "env": {
        "type": "array",
        "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "value": {"type": "string"}}},
    },
    "extraArgs": {"type": "array", "items": {"type": "string", "pattern": "^--"}},
}
"""Schemas of values that many components have, by their last name. The API server would refuse other values only during an install."""


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
    """Read values.yaml as a document; sections come before their values."""
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


def values_schema() -> dict[str, Any]:
    """Return the schema of the chart's values."""
    root: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the Herd chart",
        "type": "object",
        "additionalProperties": False,
        "properties": {},
        "definitions": _definitions(),
    }
    for value in read_values():
        section = root
        for name in value.path[:-1]:
            section = section["properties"][name]
        section["properties"][value.path[-1]] = _schema_of(value)
    for name in COMPONENTS:
        _inherit(name, root["properties"][name], root["properties"][DEFAULTS], f"#/properties/{DEFAULTS}")
    # Helm adds this section, which all subcharts of a chart share.
    root["properties"]["global"] = {"type": "object"}
    actor = root["properties"]["actor"]["properties"]
    own = {name: schema for name, schema in actor.items() if name != "groups"}
    actor["groups"]["additionalProperties"] = {"type": "object", "additionalProperties": False, "properties": own}
    return root


def _inherit(component: str, section: dict[str, Any], defaults: dict[str, Any], pointer: str) -> None:
    """Let ``section`` of a component have every value of ``defaults``, whose schema is at ``pointer``."""
    own = section["properties"]
    for name, schema in defaults["properties"].items():
        if name not in own:
            if component not in NOT_OF.get(name, ()):
                own[name] = {"$ref": f"{pointer}/properties/{name}"}
        elif "properties" in own[name] and "properties" in schema:
            _inherit(component, own[name], schema, f"{pointer}/properties/{name}")


def _schema_of(value: Value) -> dict[str, Any]:
    schema: dict[str, Any]
    if value.schema == EXPERIMENT:
        # Sections come first, so that an error names the wrong key.
        schema = {"if": {"type": "string"}, "else": {"$ref": "#/definitions/RunSettings"}}
    elif value.schema == ACTOR_GROUPS:
        schema = {"type": "object", "propertyNames": {"pattern": GROUP_NAME}}
    elif value.schema:
        schema = _draft_07(yaml.safe_load(value.schema))
    elif value.is_section:
        schema = {"type": "object", "additionalProperties": False, "properties": {}}
    else:
        schema = BY_NAME.get(value.path[-1]) or {"type": _type_of(value.default)}
    return {"description": value.comment, **schema}


def _type_of(default: object) -> str:
    kinds: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds[type(default)]


def _definitions() -> dict[str, Any]:
    """Convert the settings model's schema to draft-07, and allow what run files may omit."""
    schema = settings_json_schema()
    definitions = schema.pop("$defs")
    del schema["$schema"]
    # Every section of a run file may be empty, and the name of a variant stands for a section.
    for name, field in schema["properties"].items():
        if "$ref" in field or any("oneOf" in option for option in field.get("anyOf", ())):
            schema["properties"][name] = {"anyOf": [field, {"type": "null"}]}
    return {name: _draft_07(_whole_as_text(content)) for name, content in {"RunSettings": schema, **definitions}.items()}


def _whole_as_text(schema: Any) -> Any:
    """Allow `helm --set experiment.stop.env_frames=1e9`, which Helm converts to text."""
    if isinstance(schema, list):
        return [_whole_as_text(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    text = {"type": ["integer", "string"], "pattern": WHOLE} if schema.get("type") == "integer" else {}
    return {name: _whole_as_text(content) for name, content in (schema | text).items()}


def _draft_07(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_draft_07(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "number":
        # `helm --set` converts a float to text, which the program reads as a number again.
        schema = schema | {"type": ["number", "string"], "pattern": NUMBER}
    converted = {name: _draft_07(content) for name, content in schema.items() if name not in {"default", "format"}}
    if "$ref" in converted:
        return {"$ref": converted["$ref"].replace("#/$defs/", "#/definitions/")}  # draft-07 ignores keys next to it
    unknown = {"prefixItems", "unevaluatedProperties", "dependentRequired", "$defs"} & set(converted)
    if unknown:
        raise ValueError(f"draft-07 has no {', '.join(sorted(unknown))}: express it differently in the settings model")
    return converted


if __name__ == "__main__":
    json.dump(values_schema(), sys.stdout, indent=2)
    sys.stdout.write("\n")
