"""How many actors there are: asked for through the Deployment's scale, unless an autoscaler owns it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kubernetes.client import AppsV1Api, AutoscalingV2Api, CustomObjectsApi

from herd.kube.cluster import Want
from herd.kube.errors import NotAllowedError, NotFoundError
from herd.kube.release import Workload, read_workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.kube.cluster import Cluster
    from herd.kube.pods import Pod

_MANAGER = "herd"
"""Who changed it, in the object's managedFields."""
_MOST_CAUSES = 3


def autoscaler_of(cluster: Cluster, deployment: str) -> str | None:
    """Name the autoscaler that decides about a Deployment, as ``ScaledObject NAME`` or ``HorizontalPodAutoscaler NAME``.

    Raises:
        KubeError: it cannot be known.

    """
    return _scaled_object(cluster, deployment) or _pod_autoscaler(cluster, deployment)


def set_replicas(cluster: Cluster, deployment: str, replicas: int) -> None:
    """Ask for this many pods; raises ``KubeError``."""
    cluster.get(
        Want("patch", "deployments/scale", deployment),
        AppsV1Api(cluster.client).patch_namespaced_deployment_scale,
        deployment,
        cluster.namespace,
        {"spec": {"replicas": replicas}},
        field_manager=_MANAGER,
        _content_type="application/merge-patch+json",
    )


def read_deployment(cluster: Cluster, deployment: str) -> Workload:
    """Read how far a Deployment is; raises ``KubeError``."""
    want = Want("get", "deployments", deployment)
    return read_workload(
        cluster.get(want, AppsV1Api(cluster.client).read_namespaced_deployment, deployment, cluster.namespace), "Deployment"
    )


def causes(pods: Sequence[Pod]) -> str:
    """Say why pods are not ready, the most common cause first: ``5 Unschedulable: 0/3 nodes are available``."""
    counted = Counter(
        f"{pod.state}{f': {pod.trouble}' if pod.trouble else ''}" for pod in pods if not pod.ready and pod.state != "Terminating"
    )
    return "; ".join(f"{number} {cause}" for cause, number in counted.most_common(_MOST_CAUSES))


def _pod_autoscaler(cluster: Cluster, deployment: str) -> str | None:
    want = Want("list", "horizontalpodautoscalers")
    request = AutoscalingV2Api(cluster.client).list_namespaced_horizontal_pod_autoscaler
    for item in cluster.items(want, request, cluster.namespace):
        if _targets(item, deployment):
            return f"HorizontalPodAutoscaler {item['metadata']['name']}"
    return None


def _scaled_object(cluster: Cluster, deployment: str) -> str | None:
    request = CustomObjectsApi(cluster.client).list_namespaced_custom_object
    try:
        items = cluster.items(Want("list", "scaledobjects.keda.sh"), request, "keda.sh", "v1alpha1", cluster.namespace, "scaledobjects")
    except (NotFoundError, NotAllowedError):
        # Without KEDA there is no such resource, and who may not list it is refused even then; its own HPA shows what it owns.
        return None
    for item in items:
        if _targets(item, deployment):
            return f"ScaledObject {item['metadata']['name']}"
    return None


def _targets(item: Mapping[str, Any], deployment: str) -> bool:
    target = (item.get("spec") or {}).get("scaleTargetRef") or {}
    return target.get("name") == deployment and target.get("kind", "Deployment") == "Deployment"  # a ScaledObject may leave the kind out
