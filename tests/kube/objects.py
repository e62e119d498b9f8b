"""Objects as a real API server returns them, reduced to the fields that matter, and a release made of them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
CREATED = "2026-11-21T10:00:00Z"
BEFORE_RESTART = 100_000
"""Env frames of the run that a learner had trained on before it was restarted."""


def labels(release: str, component: str) -> Json:
    return {
        "app.kubernetes.io/name": "herd",
        "app.kubernetes.io/instance": release,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/part-of": "herd",
    }


def pod(name: str, component: str, *, release: str = "herd", namespace: str = "rl", ready: bool = True, restarts: int = 0) -> Json:
    ordinal = name.rpartition("-")[2]
    extra = {"pod-template-hash": "5d9f7c"} if component == "actor" else {"apps.kubernetes.io/pod-index": ordinal}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": CREATED,
            "labels": labels(release, component) | extra,
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [
                {
                    "name": component.partition("-")[0],
                    "image": "herd",
                    "ports": [{"name": "metrics", "containerPort": 9400, "protocol": "TCP"}],
                }
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True" if ready else "False"},
            ],
            "containerStatuses": [
                {
                    "name": component.partition("-")[0],
                    "ready": ready,
                    "restartCount": restarts,
                    "state": {"running": {"startedAt": CREATED}},
                    "lastState": {"terminated": {"exitCode": 75, "reason": "Error"}} if restarts else {},
                }
            ],
        },
    }


def pending_pod(name: str, component: str, why: str = "0/3 nodes are available: 3 Insufficient cpu.", **options: Any) -> Json:
    made = pod(name, component, ready=False, **options)
    del made["spec"]["nodeName"]
    made["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}],
    }
    return made


def waiting_pod(name: str, component: str, reason: str, message: str, *, restarts: int = 0, **options: Any) -> Json:
    made = pod(name, component, ready=False, restarts=restarts, **options)
    made["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": reason, "message": message}}
    made["status"]["phase"] = "Running" if restarts else "Pending"
    return made


def workload(kind: str, component: str, replicas: int, *, release: str = "herd", namespace: str = "rl", ready: int | None = None) -> Json:
    full_name = release if "herd" in release else f"{release}-herd"
    return {
        "kind": kind,
        "apiVersion": "apps/v1",
        "metadata": {
            "name": f"{full_name}-{component}",
            "namespace": namespace,
            "labels": labels(release, component),
        },
        "spec": {"replicas": replicas},
        "status": {
            "replicas": replicas,
            "readyReplicas": replicas if ready is None else ready,
        },
    }


def exposition(**values: float | str) -> str:
    """A /metrics page; ``name__label_value=1.0`` becomes ``herd_name{label="value"} 1.0``."""
    lines = []
    for name, value in values.items():
        metric, _, label = name.partition("__")
        key, _, word = label.partition("_")
        braces = f'{{{key}="{word}"}}' if label else ""
        lines.append(f"herd_{metric}{braces} {value}")
    return "\n".join([*lines, ""])


def learner_page(*, frames: float, updates: int, lineage: int = 3, starved: float = 1.0, rank: int = 0) -> str:
    return exposition(
        process_resident_memory_bytes=1.2e9,
        weights_lineage=lineage,
        weights_updates=updates,
        weights_age_seconds=0.4,
        learner_env_frames_total=frames,
        learner_run_env_frames=BEFORE_RESTART + frames,
        learner_queue_unrolls=3 + rank,
        learner_queue_capacity_unrolls=64,
        learner_starved_seconds_total=starved,
        learner_policy_lag_updates_sum=2.0 * frames / 100,
        learner_policy_lag_updates_count=frames / 100,
        learner_checkpoint_updates=updates - 5,
        learner_episodes_total__task_catch=40,
        learner_episode_return_mean_100__task_catch=0.75,
    )


def holder_page(*, updates: int, lineage: int = 3, age: float | str = 1.5, blocked: float = 0.0) -> str:
    """The metrics page of an actor or a parameter server."""
    return exposition(
        weights_lineage=lineage,
        weights_updates=updates,
        weights_age_seconds=age,
        actor_blocked_seconds_total=blocked,
        actor_weights_wait_seconds_total=0.0,
        actor_env_frames_total=1000,
    )
