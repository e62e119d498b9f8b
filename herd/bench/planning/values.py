"""The plan as values of the Helm chart."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from herd.bench.planning.plan import Plan
    from herd.bench.planning.pods import Pod

MEBIBYTE = 2**20
MEMORY_ROOM = 1.5
"""Asked for, of what was measured: other games, and the start."""
LEAST_MEMORY_LIMIT = 2048
"""Mebibytes that actors and servers may use, as in the chart: a server's memory grows with the clients that fetch at once."""


def helm_values(plan: Plan, *, experiment: Path | None = None, overrides: Sequence[str] = ()) -> str:
    """A fragment for ``helm install --values``; keys as in the chart's values.yaml.

    Args:
        plan: what to ask for.
        experiment: the run file that was planned for; None for Breakout with every default.
        overrides: settings that were given beside it, as words.

    """
    pods = {pod.role: pod for pod in plan.pods}
    values: dict[str, object] = {
        "actor": {"replicas": plan.actors.processes, "resources": _resources(pods["actor"])},
        "learner": {
            "shards": plan.learners.shards,
            "gpu": {"enabled": plan.learners.gpus > 0},
            "resources": {"requests": _asked(pods["learner"]), "limits": _asked(pods["learner"])},
        },
        "paramserver": {"resources": _resources(pods["paramserver"])},
        "paramserverReplica": {"replicas": plan.servers.replicas},
    }
    if plan.servers.replicas:
        values["paramserverReplica"] = {"replicas": plan.servers.replicas, "resources": _resources(pods["paramserver-replica"])}
    return _comments(plan, experiment, overrides) + yaml.safe_dump(values, sort_keys=False)


def _asked(pod: Pod) -> dict[str, str]:
    return {"cpu": str(math.ceil(pod.cores)), "memory": f"{_mebibytes(pod)}Mi"}


def _resources(pod: Pod) -> dict[str, dict[str, str]]:
    """A core more than asked for, for the start and for ZeroMQ's thread; twice the memory."""
    most = max(LEAST_MEMORY_LIMIT, 2 * _mebibytes(pod))
    return {"requests": _asked(pod), "limits": {"cpu": str(math.ceil(pod.cores) + 1), "memory": f"{most}Mi"}}


def _mebibytes(pod: Pod) -> int:
    return math.ceil(MEMORY_ROOM * pod.memory_bytes / MEBIBYTE)


def _comments(plan: Plan, experiment: Path | None, overrides: Sequence[str]) -> str:
    """What the values do not say and the release must have."""
    lines = ["The experiment is not in here. Pods of this size fit the one that was planned for:"]
    if experiment is not None:
        lines.append(f"  --set-file experiment={shlex.quote(str(experiment))}")
    elif not overrides:
        lines.append("  none; the chart's own default is Breakout with every default too.")
    if overrides:
        kind = "a copy of that file" if experiment is not None else "an experiment file (--set-file experiment=FILE)"
        lines.append(f"with these settings in {kind}:")
        lines.append(f"  {shlex.join(overrides)}")
    if plan.servers.levels > 1:
        lines.append(
            f"The plan has {plan.servers.levels} levels of replicas, {plan.servers.between} in between, and the chart one: see herd plan."
        )
    return "".join(f"# {' '.join(line.splitlines())}\n" for line in lines)
