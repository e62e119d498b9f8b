"""The messages of the wire protocol, from their classes. ``python -m docsite.messages > docs/messages.md`` writes the page."""

from __future__ import annotations

import ast
import inspect
import sys
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from herd.rpc.envelope import ENVELOPE_FIELDS, Fields, Message

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = """\
# Messages

This page is generated from `herd/protocols/*/messages.py` by `make docs`; do not edit it by hand. It lists the fields that a message has
in addition to the envelope. The [wire protocol](messaging.md) describes the envelope and the rules.
"""


def render_messages() -> Iterator[str]:
    """Yield the paragraphs of ``docs/messages.md``."""
    yield _HEAD
    for conversation in ("unrolls", "weights", "bandit", "replay", "population", "inference"):
        module = import_module(f"herd.protocols.{conversation}.messages")
        yield f"## {conversation.capitalize()}\n"
        for kind in vars(module).values():
            if inspect.isclass(kind) and issubclass(kind, Fields) and kind.__module__ == module.__name__:
                yield from _message(kind)


def _message(kind: type[Fields]) -> Iterator[str]:
    fields, meanings = kind.model_json_schema()["properties"], _meanings(kind)
    name, about = kind.__name__, inspect.getdoc(kind) or ""
    if issubclass(kind, Message):
        name = fields["type"]["const"]
        fields = {field: schema for field, schema in fields.items() if field not in Message.model_fields}
        if kind.senders:
            about += f" Roles that may send it: {', '.join(sorted(kind.senders))}."
        if kind.names:
            about += f" Its envelope contains {', '.join(f'`{field}`' for field in ENVELOPE_FIELDS if field in kind.names)}."
    yield f"### {name}\n\n{about.replace('``', '`')}\n"
    if fields:
        rows = (f"| `{field}` | {_type(schema)} | {meanings.get(field, '')} |\n" for field, schema in fields.items())
        yield "| field | type | meaning |\n| --- | --- | --- |\n" + "".join(rows)


def _meanings(kind: type[Fields]) -> dict[str, str]:
    """Return the docstring of each field that has one."""
    (body,) = (node.body for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef))
    return {
        field.target.id: " ".join(str(text.value.value).replace("``", "`").split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def _type(schema: dict[str, Any]) -> str:
    """Describe a JSON schema, without the bounds that rule R1 gives every number."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "prefixItems" in schema:
        return f"[{', '.join(map(_type, schema['prefixItems']))}]"
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}, at most {schema['maxItems']}"
    limits = {"minimum": "from", "maximum": "to", "exclusiveMaximum": "below"}
    bounds = [f"{word} {schema[key]}" for key, word in limits.items() if 0 < schema.get(key, 0) < 2**32]
    return " ".join([" or ".join(schema.get("enum", [schema["type"]])), *bounds])


if __name__ == "__main__":
    sys.stdout.write("\n".join(render_messages()))
