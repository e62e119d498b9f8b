"""Compares the objects of a release on the API server with those that the chart renders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kubernetes.client import AppsV1Api, CoreV1Api, NetworkingV1Api, PolicyV1Api, RbacAuthorizationV1Api

from herd.kube.cluster import Cluster, Want
from herd.kube.pods import COMPONENT_LABEL, RELEASE_LABEL

Object = dict[str, Any]
Key = tuple[str, str]
"""Kind and name."""
_HOOK = "helm.sh/hook"
MADE_BY_OTHERS = frozenset({"Pod", "PersistentVolumeClaim"})
"""Kinds of objects that controllers create and delete, rather than helm."""


def live_objects(cluster: Cluster, release: str) -> dict[Key, Object]:
    """Return every object in the namespace with the release's label; raises ``KubeError``."""
    found: dict[Key, Object] = {}
    for kind, request in _requests(cluster).items():
        want = Want("list", f"{kind.lower()}s")
        for item in cluster.items(want, request, cluster.namespace, label_selector=f"{RELEASE_LABEL}={release}"):
            found[(kind, item["metadata"]["name"])] = item
    return found


def installed_objects(rendered: list[Object]) -> dict[Key, Object]:
    """The rendered objects that an install leaves in the namespace. Hooks are left out: ``helm test`` creates them.

    Like the items of a list response, they have no kind, which the list itself names.
    """
    return {
        (item["kind"], item["metadata"]["name"]): {name: value for name, value in item.items() if name not in {"kind", "apiVersion"}}
        for item in rendered
        if _HOOK not in (item["metadata"].get("annotations") or {})
    }


def differences(wanted: Any, live: Any, path: str = "") -> Iterator[str]:
    """List requested values that differ. Values that the server adds (defaults, status) and empty values that it drops are not reported."""
    if isinstance(wanted, dict):
        held = live if isinstance(live, dict) else {}
        for key, value in wanted.items():
            yield from differences(value, held.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(wanted, list) and wanted:
        if not isinstance(live, list) or len(live) != len(wanted):
            yield f"{path}: {len(wanted)} wanted, not {live!r}"
            return
        for number, (value, other) in enumerate(zip(wanted, live, strict=True)):
            yield from differences(value, other, f"{path}[{number}]")
    elif wanted not in (None, []) and wanted != live:
        yield f"{path}: {wanted!r} wanted, not {live!r}"


def pod_templates(objects: Mapping[Key, Object]) -> dict[str, Object]:
    """Pod template of each workload, by its name."""
    return {name: item["spec"]["template"] for (kind, name), item in objects.items() if kind in {"Deployment", "StatefulSet"}}


def changed_components(before: Mapping[Key, Object], now: Mapping[Key, Object]) -> set[str]:
    """Components whose pod templates have changed."""
    old, new = pod_templates(before), pod_templates(now)
    return {new[name]["metadata"]["labels"][COMPONENT_LABEL] for name in new if new[name] != old.get(name)}


def _requests(cluster: Cluster) -> dict[str, Callable[..., Any]]:
    client = cluster.client
    core, apps, policy, network = CoreV1Api(client), AppsV1Api(client), PolicyV1Api(client), NetworkingV1Api(client)
    return {
        "Pod": core.list_namespaced_pod,
        "Service": core.list_namespaced_service,
        "ConfigMap": core.list_namespaced_config_map,
        "Secret": core.list_namespaced_secret,
        "ServiceAccount": core.list_namespaced_service_account,
        "PersistentVolumeClaim": core.list_namespaced_persistent_volume_claim,
        "Deployment": apps.list_namespaced_deployment,
        "StatefulSet": apps.list_namespaced_stateful_set,
        "PodDisruptionBudget": policy.list_namespaced_pod_disruption_budget,
        "NetworkPolicy": network.list_namespaced_network_policy,
        "Role": RbacAuthorizationV1Api(client).list_namespaced_role,
    }
