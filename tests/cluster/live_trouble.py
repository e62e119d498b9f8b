"""Describes a release that did not become ready: its pods, why they wait, and their last log lines."""

from __future__ import annotations

from collections.abc import Sequence

from kubernetes.client import CoreV1Api

from herd.kube.cluster import Cluster, Want
from herd.kube.errors import KubeError
from herd.kube.pods import Pod
from herd.kube.release import release_pods

NO_NODE = "no node runs these pods: CLUSTER_PROCESSES=0 checks what a cluster without nodes can show"
_LINES = 15
"""Log lines shown of each pod, enough for the end of a traceback."""
_MOST_PODS = 8


def hint(pods: Sequence[Pod]) -> str:
    """Advice for the case that pods wait for a node; otherwise empty."""
    return NO_NODE if any(pod.node is None and not pod.ready and pod.state != "Terminating" for pod in pods) else ""


def describe(cluster: Cluster, release: str) -> str:
    """List the pods with state and reason, then the last log lines of those that are not ready. Never raises on a failed request."""
    try:
        pods = release_pods(cluster, release)
    except KubeError as error:
        return f"pods cannot be listed: {error}"
    said = [f"{len(pods)} pods of {release} in {cluster.namespace}"]
    said += [f"  {pod.name}: {pod.state}, {_readiness(pod)}{f': {pod.trouble}' if pod.trouble else ''}" for pod in pods]
    for pod in [pod for pod in pods if not pod.ready or pod.restarts][:_MOST_PODS]:
        for previous in (True, False) if pod.restarts else (False,):  # of the previous container and of the current one
            said += [f"--- {pod.name}", *last_lines(cluster, pod.name, previous=previous)]
    return "\n".join([*said, *filter(None, [hint(pods) if pods else NO_NODE])])


def _readiness(pod: Pod) -> str:
    return f"{'ready' if pod.ready else 'not ready'}, {pod.restarts} restarts"


def last_lines(cluster: Cluster, pod: str, *, previous: bool = False) -> list[str]:
    """Last log lines of a pod's only container, or of the ``previous`` one."""
    want, request = Want("get", "pods/log", pod), CoreV1Api(cluster.client).read_namespaced_pod_log
    try:
        log = cluster.read(want, request, pod, cluster.namespace, tail_lines=_LINES, previous=previous)
    except KubeError as error:
        return [f"no log: {error}"]
    return log.decode(errors="replace").splitlines()
