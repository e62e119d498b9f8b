"""Pods in the form that `kubectl get pods` requests: a Table, with cells written as an API server's printers do."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.kube.fake_objects import Json

_COLUMNS = ("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates")


def pod_table(pods: list[Json], metadata: Json) -> Json:
    """A page of rows, without the objects (``includeObject=None``)."""
    columns = [{"name": name, "type": "string", "format": "", "description": "", "priority": 0} for name in _COLUMNS]
    now = datetime.now(UTC)
    rows = [{"cells": _cells(pod, now), "object": None} for pod in pods]
    return {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns, "rows": rows}


def _cells(pod: Json, now: datetime) -> list[str]:
    status = pod["status"]
    containers = status.get("containerStatuses", [])
    ready = sum(each["ready"] for each in containers)
    restarts = sum(each["restartCount"] for each in containers)
    reasons = [each["state"]["waiting"]["reason"] for each in containers if "waiting" in each["state"]]
    state = "Terminating" if "deletionTimestamp" in pod["metadata"] else (reasons or [status["phase"]])[0]
    created = pod["metadata"].get("creationTimestamp")
    age = "<unknown>" if created is None else _age((now - datetime.fromisoformat(created)).total_seconds())
    return [
        pod["metadata"]["name"],
        f"{ready}/{len(pod['spec']['containers'])}",
        state,
        f"{restarts} (5m3s ago)" if restarts else "0",
        age,
        status.get("podIP", "<none>"),
        pod["spec"].get("nodeName", "<none>"),
        "<none>",
        "<none>",
    ]


def _age(seconds: float) -> str:
    """Format an age like HumanDuration of k8s.io/apimachinery, with two units if the first is small."""
    seconds = int(seconds)
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3_600, seconds // 86_400
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d"
