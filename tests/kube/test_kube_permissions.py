"""The Role of docs/kubernetes-commands.md grants what `herd status` needs, and nothing more."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from tests.kube.conftest import REPOSITORY, Answer, Served

Herd = Callable[..., Answer]
_REQUEST = re.compile(r"^/(?:api|apis/([^/]+))/[^/]+/namespaces/rl/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?")


def documented_role() -> dict[str, Any]:
    text = (REPOSITORY / "docs" / "kubernetes-commands.md").read_text()
    [role] = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "kind: Role" in block]
    return dict(yaml.safe_load(role))


def allowed() -> set[tuple[str, str, str]]:
    """Each permission as (verb, group, resource)."""
    return {
        (verb, group, resource)
        for rule in documented_role()["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def asked(served: Served) -> set[tuple[str, str, str]]:
    found = set()
    for method, path, _ in served.fake.requests:
        match = _REQUEST.match(path)
        assert match is not None, path
        group, resource, name, below = match.groups()
        assert method == "GET"
        verb = "get" if name else "list"
        found.add((verb, group or "", f"{resource}/{below}" if below else resource))
    return found


def test_the_documented_role_matches_the_requests_of_the_commands(served: Served, herd: Herd) -> None:
    assert herd("status", "--release", "herd", "--seconds", "0").code == 0
    assert asked(served) == allowed()
