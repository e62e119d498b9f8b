"""A release of the chart: its workloads and their pods."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from herd.kube.cluster import Want
from herd.kube.errors import KubeError
from herd.kube.pods import COMPONENT_LABEL, RELEASE_LABEL, Pod, in_order, read_actor_rows, read_pod, worst_first
from herd.topology import COMPONENT_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from herd.kube.cluster import Cluster

_OURS = f"app.kubernetes.io/part-of=herd,{COMPONENT_LABEL} in ({','.join(COMPONENT_NAMES)})"
_PODS = "/api/v1/namespaces/{namespace}/pods"
_MANY = "actor"
"""The component that may have thousands of pods."""
_MOST_EXAMPLES = 4
_MOST_NAMED = 10
"""Largest number of releases in a message."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or StatefulSet of a release."""

    kind: str
    name: str
    component: str
    wanted: int
    """Number of requested replicas."""
    present: int
    """Pods that exist, of any version of the workload."""
    ready: int
    updated: int
    """Pods of the newest version of the workload."""
    observed: bool
    """Whether the controller has seen the newest version. Otherwise the numbers belong to an older one."""

    @property
    def settled(self) -> bool:
        """Whether exactly the requested pods exist and are ready."""
        return self.observed and self.present == self.updated == self.ready == self.wanted


@dataclass(frozen=True, slots=True)
class Release:
    """A release made by ``helm install NAME``."""

    name: str
    namespace: str
    workloads: tuple[Workload, ...]


def find_release(cluster: Cluster, name: str) -> Release:
    """Find a release.

    Raises:
        KubeError: there is no such release; the line lists the existing ones.

    """
    by_release = _workloads(cluster)
    if name not in by_release:
        raise KubeError(f"no release {name} in namespace {cluster.namespace}; {_there_are(cluster, by_release)}")
    workloads = sorted(by_release[name], key=lambda workload: COMPONENT_NAMES.index(workload.component))
    return Release(name, cluster.namespace, tuple(workloads))


def release_overview(cluster: Cluster, release: str) -> list[Pod]:
    """List the pods of a release in order. Actors, of which there may be thousands, are summarised except for some with problems.

    Raises:
        KubeError: they cannot be listed.
    """
    pods = release_pods(cluster, release, *(name for name in COMPONENT_NAMES if name != _MANY))
    selector, now = _selector(release, _MANY), datetime.now(UTC)
    tables = cluster.tables(Want("list", "pods"), cluster.at(_PODS), label_selector=selector)
    actors = {pod.name: pod for table in tables for pod in read_actor_rows(table, now)}
    for pod in _examples(actors.values()):
        items = cluster.items(Want("list", "pods"), cluster.at(_PODS), field_selector=f"metadata.name={pod.name}")
        for whole in filter(None, map(read_pod, items)):
            actors[whole.name] = whole
    return in_order([*pods, *actors.values()])


def _examples(pods: Iterable[Pod]) -> list[Pod]:
    """Choose pods with problems that are read in full, to get the reason: one of each state, the worst first."""
    troubled = [pod for pod in worst_first(pods) if not pod.ready or pod.restarts]
    of_state = {(pod.state, pod.ready): pod for pod in reversed(troubled)}
    return list(reversed(of_state.values()))[:_MOST_EXAMPLES]


def release_pods(cluster: Cluster, release: str, *components: str) -> list[Pod]:
    """List the pods of a release, or of some components of it, in order; raises ``KubeError``."""
    items = cluster.items(Want("list", "pods"), cluster.at(_PODS), label_selector=_selector(release, *components))
    return in_order(pod for item in items if (pod := read_pod(item)) is not None)


def _selector(release: str, *components: str) -> str:
    return f"{RELEASE_LABEL}={release},{COMPONENT_LABEL} in ({','.join(components or COMPONENT_NAMES)})"


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
    found: dict[str, list[Workload]] = {}
    for kind, resource in (("Deployment", "deployments"), ("StatefulSet", "statefulsets")):
        for item in cluster.items(
            Want("list", resource), cluster.at(f"/apis/apps/v1/namespaces/{{namespace}}/{resource}"), label_selector=_OURS
        ):
            found.setdefault(_release_of(item), []).append(_workload(item, kind))
    return found


def _release_of(item: Mapping[str, Any]) -> str:
    labels: Mapping[str, Any] = (item.get("metadata") or {}).get("labels") or {}
    return str(labels.get(RELEASE_LABEL, ""))


def _there_are(cluster: Cluster, by_release: Mapping[str, Any]) -> str:
    """List the releases of this namespace or, if there are none, of all readable namespaces."""
    if by_release:
        return f"its releases are: {_some(sorted(by_release))}"
    everywhere = cluster.at("/apis/apps/v1/deployments")
    try:
        items = cluster.items(Want("list", "deployments"), everywhere, label_selector=_OURS)
    except KubeError:
        items = []  # most users can read only their own namespace
    elsewhere = sorted({f"{_release_of(item)} (--namespace {item['metadata'].get('namespace')})" for item in items})
    return f"other namespaces have: {_some(elsewhere)}" if elsewhere else "this namespace has no releases"


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")
