"""Controllers that create pods for what Helm applied to the fake API server (no pod becomes ready), and a node that runs one pod."""

from __future__ import annotations

import copy
import hashlib
import json
import subprocess
import sys
import threading
from types import TracebackType
from typing import Any

from tests.kube.fake_api_server import FakeCluster
from tests.kube.fake_objects import Json
from tests.patience import patient


class Controllers:
    """Called before every list: creates the pods of each workload, and deletes pods whose workload is gone."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._made = 0

    def __call__(self) -> None:
        """Reconcile once."""
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


class Node:
    """Runs the process of one pod as soon as the pod exists, with this Python and the pod's arguments. Use as a context manager."""

    def __init__(self, cluster: FakeCluster, pod: str) -> None:
        self._cluster = cluster
        self._pod = pod
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Node:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(patient(60))

    def _run(self) -> None:
        while (pod := self._cluster.find("pods", self._pod)) is None:
            if self._over.wait(0.02):
                return
        [container] = pod["spec"]["containers"]
        _, *words = container["command"]  # the first word is python
        done = subprocess.run(
            [sys.executable, *words, *container["args"]], capture_output=True, text=True, timeout=patient(100), check=False
        )
        self._cluster.logs[self._pod] = [*done.stdout.splitlines(), *done.stderr.splitlines()]
        ended = {"terminated": {"exitCode": done.returncode, "reason": "Error" if done.returncode else "Completed"}}
        statuses = [{"name": container["name"], "ready": False, "restartCount": 0, "state": ended}]
        status = {"phase": "Failed" if done.returncode else "Succeeded", "containerStatuses": statuses}
        self._cluster.put("pods", copy.deepcopy(pod) | {"status": status})
