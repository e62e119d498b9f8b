"""Reads the metrics of pods through the API server, so that no port must be exposed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from herd.kube.cluster import MOST_AT_ONCE, Want
from herd.kube.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.kube.cluster import Cluster
    from herd.kube.pods import Pod

_READ_SECONDS = 5.0
"""Timeout. A pod answers in milliseconds; the API server would wait 30 s for an unreachable one."""
_MOST_BYTES = 8 << 20


def metrics_pages(cluster: Cluster, pods: Sequence[Pod]) -> dict[str, bytes | KubeError]:
    """Read /metrics of ``pods``, several at once. Returns pages by name of the pod, or the error if a pod does not answer."""

    def read(pod: Pod) -> bytes | KubeError:
        try:
            return metrics_page(cluster, pod.name, pod.metrics_port)
        except KubeError as error:
            return error

    if not pods:
        return {}
    with ThreadPoolExecutor(max_workers=min(MOST_AT_ONCE, len(pods)), thread_name_prefix="pod-metrics") as threads:
        return dict(zip((pod.name for pod in pods), threads.map(read, pods), strict=True))


def metrics_page(cluster: Cluster, pod: str, port: int) -> bytes:
    """Read /metrics of one pod; raises ``KubeError``."""
    return cluster.read(
        Want("get", "pods/proxy"),
        cluster.at(f"/api/v1/namespaces/{{namespace}}/pods/{pod}:{port}/proxy/metrics"),
        accept="text/plain",
        most_bytes=_MOST_BYTES,
        read_seconds=_READ_SECONDS,
    )
