"""A release as the chart made it: its workloads and their pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kubernetes.client import AppsV1Api, CoreV1Api

from herd.kube.cluster import Want
from herd.kube.errors import KubeError
from herd.kube.pods import COMPONENT_LABEL, RELEASE_LABEL, Pod, in_order, read_pod
from herd.topology import COMPONENT_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from herd.kube.cluster import Cluster

_OURS = f"app.kubernetes.io/part-of=herd,{COMPONENT_LABEL} in ({','.join(COMPONENT_NAMES)})"
_MOST_NAMED = 10
"""Releases listed in one line."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or StatefulSet of a release."""

    kind: str
    name: str
    component: str
    wanted: int
    """Replicas asked for."""
    present: int
    """Pods that exist, of any version of the workload."""
    ready: int
    updated: int
    """Pods of the newest version of the workload."""
    observed: bool
    """Whether the controller has seen the newest version; the numbers are of an older one otherwise."""

    @property
    def settled(self) -> bool:
        """Whether everything asked for is there and ready, and nothing else."""
        return self.observed and self.present == self.updated == self.ready == self.wanted


@dataclass(frozen=True, slots=True)
class Release:
    """What ``helm install NAME`` made."""

    name: str
    namespace: str
    workloads: tuple[Workload, ...]


def find_release(cluster: Cluster, name: str) -> Release:
    """Find a release.

    Raises:
        KubeError: no such release; the line lists those there are.

    """
    by_release = _workloads(cluster)
    if name not in by_release:
        raise KubeError(f"no release {name} in namespace {cluster.namespace}; {_there_are(cluster, by_release)}")
    workloads = sorted(by_release[name], key=lambda workload: COMPONENT_NAMES.index(workload.component))
    return Release(name, cluster.namespace, tuple(workloads))


def release_pods(cluster: Cluster, release: str, component: str | None = None) -> list[Pod]:
    """List the pods of a release, or of one component of it, in order; raises ``KubeError``."""
    chosen = f"{COMPONENT_LABEL}={component}" if component else f"{COMPONENT_LABEL} in ({','.join(COMPONENT_NAMES)})"
    items = cluster.items(
        Want("list", "pods"),
        CoreV1Api(cluster.client).list_namespaced_pod,
        cluster.namespace,
        label_selector=f"{RELEASE_LABEL}={release},{chosen}",
    )
    return in_order(pod for item in items if (pod := read_pod(item)) is not None)


def _workload(item: Mapping[str, Any], kind: str) -> Workload:
    metadata, spec, status = (item.get(key) or {} for key in ("metadata", "spec", "status"))
    replicas = spec.get("replicas")
    return Workload(
        kind=kind,
        name=metadata["name"],
        component=(metadata.get("labels") or {}).get(COMPONENT_LABEL, ""),
        wanted=1 if replicas is None else int(replicas),
        present=int(status.get("replicas") or 0),
        ready=int(status.get("readyReplicas") or 0),
        updated=int(status.get("updatedReplicas") or 0),
        observed=int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0),
    )


def _workloads(cluster: Cluster) -> dict[str, list[Workload]]:
    apps = AppsV1Api(cluster.client)
    kinds: dict[str, tuple[str, Callable[..., Any]]] = {
        "Deployment": ("deployments", apps.list_namespaced_deployment),
        "StatefulSet": ("statefulsets", apps.list_namespaced_stateful_set),
    }
    found: dict[str, list[Workload]] = {}
    for kind, (resource, request) in kinds.items():
        for item in cluster.items(Want("list", resource), request, cluster.namespace, label_selector=_OURS):
            found.setdefault(_release_of(item), []).append(_workload(item, kind))
    return found


def _release_of(item: Mapping[str, Any]) -> str:
    labels: Mapping[str, Any] = (item.get("metadata") or {}).get("labels") or {}
    return str(labels.get(RELEASE_LABEL, ""))


def _there_are(cluster: Cluster, by_release: Mapping[str, Any]) -> str:
    """The releases there are: of this namespace, or else of any other that may be looked at."""
    if by_release:
        return f"there are: {_some(sorted(by_release))}"
    everywhere = AppsV1Api(cluster.client).list_deployment_for_all_namespaces
    try:
        items = cluster.items(Want("list", "deployments"), everywhere, label_selector=_OURS)
    except KubeError:
        items = []  # most users see their own namespace only
    elsewhere = sorted({f"{_release_of(item)} (--namespace {item['metadata'].get('namespace')})" for item in items})
    return f"elsewhere there are: {_some(elsewhere)}" if elsewhere else "there is none in this namespace"


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")
