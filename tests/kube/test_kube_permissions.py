"""The Role of docs/kubernetes-commands.md is enough for all three commands."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from tests.kube.conftest import REPOSITORY, Answer, Served

Herd = Callable[..., Answer]
_REQUEST = re.compile(r"^/(?:api|apis/([^/]+))/[^/]+/namespaces/rl/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?")
_NOT_NEEDED = "scaledobjects"


def documented_role() -> dict[str, Any]:
    text = (REPOSITORY / "docs" / "kubernetes-commands.md").read_text()
    [role] = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "kind: Role" in block]
    return dict(yaml.safe_load(role))


def allowed() -> set[tuple[str, str, str]]:
    """Verb, group and resource."""
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
        verb = "patch" if method == "PATCH" else "get" if name else "list"
        found.add((verb, group or "", f"{resource}/{below}" if below else resource))
    return found


def test_the_documented_role_is_what_the_commands_ask_for(served: Served, herd: Herd) -> None:
    served.fake.say("herd-learner-0", "hello")
    served.fake.end_log("herd-learner-0")
    assert herd("status", "--release", "herd", "--seconds", "0").code == 0
    assert herd("scale", "actors", "3", "--timeout", "0").code == 1
    assert herd("logs", "learner", "--rank", "0").code == 0
    assert asked(served) <= allowed()
    unused = {resource for verb, _, resource in allowed() - asked(served) if (verb, resource) != ("get", "statefulsets")}
    assert unused <= {_NOT_NEEDED}
