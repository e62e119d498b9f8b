"""The kinds of objects that the fake API server keeps, and the discovery answers that kubectl and helm ask for first."""

from __future__ import annotations

from typing import NamedTuple

from tests.kube.fake_objects import Json


class Kind(NamedTuple):
    group: str
    version: str
    name: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


KINDS = {
    "configmaps": Kind("", "v1", "ConfigMap"),
    "namespaces": Kind("", "v1", "Namespace", namespaced=False),
    "persistentvolumeclaims": Kind("", "v1", "PersistentVolumeClaim"),
    "pods": Kind("", "v1", "Pod"),
    "secrets": Kind("", "v1", "Secret"),
    "serviceaccounts": Kind("", "v1", "ServiceAccount"),
    "services": Kind("", "v1", "Service"),
    "deployments": Kind("apps", "v1", "Deployment"),
    "statefulsets": Kind("apps", "v1", "StatefulSet"),
    "networkpolicies": Kind("networking.k8s.io", "v1", "NetworkPolicy"),
    "poddisruptionbudgets": Kind("policy", "v1", "PodDisruptionBudget"),
    "roles": Kind("rbac.authorization.k8s.io", "v1", "Role"),
    "rolebindings": Kind("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    "storageclasses": Kind("storage.k8s.io", "v1", "StorageClass", namespaced=False),
}
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
GROUPS = sorted({(kind.group, kind.version) for kind in KINDS.values() if kind.group})

_API_VERSIONS = sorted({kind.api_version for kind in KINDS.values()})


def discovery(path: str) -> Json | None:
    """The answer to a request about the server itself; None for any other request."""
    if path == "/version":
        return {"major": "1", "minor": "36", "gitVersion": "v1.36.2", "platform": "linux/amd64"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [
            {"name": group, "versions": [version], "preferredVersion": version}
            for group, number in GROUPS
            for version in [{"groupVersion": f"{group}/{number}", "version": number}]
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if path == "/openapi/v3":
        return {"paths": {_below(version): {"serverRelativeURL": f"/openapi/v3/{_below(version)}"} for version in _API_VERSIONS}}
    if path.startswith("/openapi/v3/"):
        return _openapi(path.removeprefix("/openapi/v3/"))
    for api_version in _API_VERSIONS:
        if path == f"/{_below(api_version)}":
            resources = [
                {"name": plural, "singularName": kind.name.lower(), "namespaced": kind.namespaced, "kind": kind.name, "verbs": _VERBS}
                for plural, kind in KINDS.items()
                if kind.api_version == api_version
            ]
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources}
    return None


def _below(api_version: str) -> str:
    return f"apis/{api_version}" if "/" in api_version else f"api/{api_version}"


def _openapi(below: str) -> Json:
    """A schema without content in which every kind accepts ``fieldValidation``, so that clients leave validation to the server."""
    paths = {
        f"/{below}/{plural}/{{name}}": {
            "patch": {
                "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.name},
                "parameters": [{"name": "fieldValidation", "in": "query"}],
            }
        }
        for plural, kind in KINDS.items()
        if _below(kind.api_version) == below
    }
    return {"openapi": "3.0.0", "info": {"title": "stand-in", "version": "v1"}, "paths": paths}
