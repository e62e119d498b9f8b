"""The plan as values of the Helm chart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from herd.bench.planning.plan import Plan

MEBIBYTE = 2**20
MEMORY_ROOM = 1.5
"""Asked for, of what was measured: other games, and the start."""


def helm_values(plan: Plan) -> str:
    """A fragment for ``helm install --values``; keys as in the chart's values.yaml."""
    learner = next(pod for pod in plan.pods if pod.role == "learner")
    room = {"cpu": str(math.ceil(learner.cores)), "memory": f"{math.ceil(MEMORY_ROOM * learner.memory_bytes / MEBIBYTE)}Mi"}
    values: dict[str, object] = {
        "actor": {"replicas": plan.actors.processes},
        "learner": {
            "shards": plan.learners.shards,
            "gpu": {"enabled": plan.learners.gpus > 0},
            "resources": {"requests": room, "limits": dict(room)},
        },
        "paramserverReplica": {"replicas": plan.servers.replicas},
    }
    levels = (
        f"# The plan has {plan.servers.levels} levels of replicas, and the chart one: see herd plan.\n" if plan.servers.levels > 1 else ""
    )
    return levels + yaml.safe_dump(values, sort_keys=False)
