"""Ownership of an object's fields: server-side apply as an API server does it, except that a list counts as one field."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Field = tuple[str, ...]
_SERVERS_OWN = frozenset({"uid", "generation", "resourceVersion", "creationTimestamp", "managedFields", "name", "namespace"})


@dataclass(frozen=True)
class Manager:
    """A writer of fields. One program that both applies and updates counts as two managers, as does one that writes a subresource."""

    name: str
    operation: str
    """Apply or Update."""
    subresource: str = ""

    def __str__(self) -> str:
        return f'"{self.name}"' + (f' with subresource "{self.subresource}"' if self.subresource else "")


class ApplyConflictError(Exception):
    """Other managers own these fields with other values; the message is the API server's."""

    def __init__(self, api_version: str, conflicts: dict[Field, Manager]) -> None:
        lines = [f"{manager} using {api_version}: .{'.'.join(path)}" for path, manager in conflicts.items()]
        many = "s" if len(lines) > 1 else ""
        super().__init__(f"Apply failed with {len(lines)} conflict{many}: conflict{many} with " + "; ".join(lines))


@dataclass
class FieldOwners:
    """The owners of one object's fields."""

    owners: dict[Field, set[Manager]] = field(default_factory=dict)

    def apply(self, live: Json, wanted: Json, manager: Manager, *, force: bool) -> Json:
        """Return the object after a server-side apply.

        Raises:
            ApplyConflictError: there is a conflict, and nothing changes.
        """
        fields, held = leaves(wanted), leaves(live)
        conflicts = {
            path: other
            for path, value in fields.items()
            if path in held and held[path] != value
            for other in sorted(self.owners.get(path, set()) - {manager}, key=str)
        }
        if conflicts and not force:
            raise ApplyConflictError(wanted["apiVersion"], conflicts)
        changed = copy.deepcopy(live)
        for path in [path for path, owners in self.owners.items() if manager in owners and path not in fields]:
            self.owners[path].discard(manager)
            if not self.owners[path]:  # no manager applies it any more
                del self.owners[path]
                _remove(changed, path)
        for path, value in fields.items():
            if held.get(path) == value:
                self.owners.setdefault(path, set()).add(manager)
            else:
                self.owners[path] = {manager}
                _set(changed, path, value)
        return changed

    def update(self, live: Json, changed: Json, manager: Manager) -> None:
        """Record that ``manager`` replaced ``live`` by ``changed``: it now owns the fields that it changed."""
        before, after = leaves(live), leaves(changed)
        for path in before.keys() - after.keys():
            self.owners.pop(path, None)
        for path, value in after.items():
            if path not in before or before[path] != value:
                self.owners[path] = {manager}

    def managed_fields(self, api_version: str) -> list[Json]:
        """The value of ``metadata.managedFields``."""
        managers: dict[Manager, Json] = {}
        for path, owners in self.owners.items():
            for manager in owners:
                node = managers.setdefault(manager, {})
                for name in path:
                    node = node.setdefault(f"f:{name}", {})
        return [
            {
                "manager": manager.name,
                "operation": manager.operation,
                "apiVersion": api_version,
                "fieldsType": "FieldsV1",
                "fieldsV1": fields,
            }
            | ({"subresource": manager.subresource} if manager.subresource else {})
            for manager, fields in managers.items()
        ]


def leaves(item: Json) -> dict[Field, Any]:
    """The fields that clients write, by path; fields set by the server are left out."""
    own = {key: value for key, value in item.items() if key not in {"apiVersion", "kind", "status"}}
    own["metadata"] = {key: value for key, value in own.get("metadata", {}).items() if key not in _SERVERS_OWN}
    found: dict[Field, Any] = {}

    def walk(value: Any, path: Field) -> None:
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                walk(inner, (*path, name))
        elif value is not None:
            found[path] = value

    for name, value in own.items():
        walk(value, (name,))
    return found


def _set(item: Json, path: Field, value: Any) -> None:
    for name in path[:-1]:
        inner = item.get(name)
        if not isinstance(inner, dict):
            inner = item[name] = {}
        item = inner
    item[path[-1]] = copy.deepcopy(value)


def _remove(item: Json, path: Field) -> None:
    for name in path[:-1]:
        item = item.get(name) or {}
    item.pop(path[-1], None)
