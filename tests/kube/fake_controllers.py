"""Controllers that make pods of what Helm applied to the stand-in API server; none of the pods is ever ready."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests.kube.fake_api_server import FakeCluster
from tests.kube.fake_objects import Json


class Controllers:
    """Called before every list: gives each workload its pods, and takes away those of none."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._made = 0

    def __call__(self) -> None:
        """Look once."""
        pods = self._cluster.objects.setdefault("pods", [])
        wanted: dict[str, tuple[Json, str]] = {}
        for item in [*self._cluster.objects.get("deployments", []), *self._cluster.objects.get("statefulsets", [])]:
            revision = hashlib.sha256(json.dumps(item["spec"]["template"], sort_keys=True).encode()).hexdigest()[:10]
            item["status"] = {"observedGeneration": item["metadata"]["generation"], "updateRevision": revision}
            wanted |= {f"{item['metadata']['name']}-{number}": (item, revision) for number in range(item["spec"]["replicas"])}
        kept = [pod for pod in pods if pod["metadata"]["name"] in wanted or "helm.sh/hook" in pod["metadata"].get("annotations", {})]
        there = {pod["metadata"]["name"] for pod in kept}
        pods[:] = kept + [self._pod(name, item, revision) for name, (item, revision) in wanted.items() if name not in there]

    def _pod(self, name: str, owner: Json, revision: str) -> Json:
        self._made += 1
        labels: dict[str, Any] = owner["spec"]["template"]["metadata"]["labels"] | {"controller-revision-hash": revision}
        metadata = {"name": name, "namespace": owner["metadata"]["namespace"], "uid": f"uid-{self._made}", "labels": labels}
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes available"}
        return {"metadata": metadata, "spec": owner["spec"]["template"]["spec"], "status": {"phase": "Pending", "conditions": [condition]}}
