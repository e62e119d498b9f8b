"""What the suite is told by environment variables, and the small run that it installs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
ACTORS = 2
LEARNING_RATE = 2.0e-3
OTHER_LEARNING_RATE = 1.0e-3
"""What the upgrade changes: the learner's metrics show it, and no process refuses to talk to another over it."""

VARIABLES = {
    "KUBECONFIG": "the cluster, as its current context (or CLUSTER_CONTEXT) names it; the suite makes and deletes one namespace there",
    "CLUSTER_CONTEXT": "another context of it",
    "CLUSTER_IMAGE_REGISTRY": "registry and path before herd-actor, herd-learner, herd-paramserver, herd-bandit; default: none",
    "CLUSTER_IMAGE_TAG": "their tag; default: the chart's appVersion",
    "CLUSTER_IMAGE_PULL_POLICY": "IfNotPresent (default), Always, or Never where images are loaded into the nodes",
    "CLUSTER_VALUES": "one more values file, which wins over the suite's own",
    "CLUSTER_CHART": "the chart; default: helm/herd",
    "CLUSTER_SHARDS": "learner shards; default: 1",
    "CLUSTER_PROCESSES": "0: no pod runs here (no nodes, no images), so only objects are checked; default: 1",
    "CLUSTER_KEEP": "1: the namespace stays, to be looked at; default: 0",
    "CLUSTER_TIMEOUT_SECONDS": "longest wait for any one thing; default: 600",
    "HELM": "the helm program; default: helm from PATH",
}
"""Everything that may be set, and what it is."""


class SettingsProblemError(Exception):
    """The suite cannot run; one line."""


@dataclass(frozen=True)
class ClusterSettings:
    """How to run the suite."""

    kubeconfig: str
    context: str | None
    helm: str
    chart: Path
    registry: str
    tag: str
    pull_policy: str
    more_values: Path | None
    shards: int
    processes: bool
    """Whether pods run here; objects are all there is otherwise."""
    keep: bool
    """Whether the namespace stays."""
    timeout_seconds: float

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> ClusterSettings:
        """Read the environment; raises ``SettingsProblemError``."""
        kubeconfig = environ.get("KUBECONFIG", "")
        if not kubeconfig:
            raise SettingsProblemError("tests/cluster needs KUBECONFIG: the cluster to install into (see docs/kubernetes-commands.md)")
        helm = shutil.which(environ.get("HELM") or "helm")
        if helm is None:
            raise SettingsProblemError(f"tests/cluster needs helm: {environ.get('HELM') or 'helm'} is no program; set HELM")
        chart = Path(environ.get("CLUSTER_CHART") or REPOSITORY / "helm" / "herd")
        if not (chart / "Chart.yaml").is_file():
            raise SettingsProblemError(f"tests/cluster needs the chart: {chart} is none; set CLUSTER_CHART")
        more = Path(environ["CLUSTER_VALUES"]) if environ.get("CLUSTER_VALUES") else None
        if more is not None and not more.is_file():
            raise SettingsProblemError(f"CLUSTER_VALUES={more}: no such file")
        return cls(
            kubeconfig=kubeconfig,
            context=environ.get("CLUSTER_CONTEXT") or None,
            helm=helm,
            chart=chart,
            registry=environ.get("CLUSTER_IMAGE_REGISTRY", ""),
            tag=environ.get("CLUSTER_IMAGE_TAG", ""),
            pull_policy=environ.get("CLUSTER_IMAGE_PULL_POLICY") or "IfNotPresent",
            more_values=more,
            shards=_number(environ, "CLUSTER_SHARDS", 1),
            processes=_switch(environ, "CLUSTER_PROCESSES", default=True),
            keep=_switch(environ, "CLUSTER_KEEP", default=False),
            timeout_seconds=_number(environ, "CLUSTER_TIMEOUT_SECONDS", 600),
        )

    def values(self, *, volumes: bool, learning_rate: float = LEARNING_RATE) -> dict[str, Any]:
        """Values of the chart: Catch with DiCE, so that there is a bandit, on CPUs, in pods that fit a laptop's cluster.

        ``volumes``: keep the learner's and the bandit's files on volumes of the default storage class, deleted with the release.
        """
        volume = {"enabled": volumes, "size": "1Gi", "retention": {"whenDeleted": "Delete", "whenScaled": "Delete"}}
        return {
            "image": {"registry": self.registry, "tag": self.tag, "pullPolicy": self.pull_policy},
            "experiment": experiment(learning_rate, self.shards),
            "actor": {"replicas": ACTORS, "resources": _resources("100m", "384Mi", "1", "1Gi")},
            "learner": {
                "shards": self.shards,
                "sharedMemory": "64Mi",
                "scratch": "1Gi",
                "persistence": volume,
                "resources": _resources("200m", "512Mi", "2", "2Gi"),
            },
            "paramserver": {"resources": _resources("50m", "96Mi", "500m", "512Mi")},
            "paramserverReplica": {"replicas": 1, "resources": _resources("50m", "96Mi", "500m", "512Mi")},
            "bandit": {"persistence": volume, "resources": _resources("50m", "96Mi", "500m", "512Mi")},
        }


def experiment(learning_rate: float, shards: int) -> dict[str, Any]:
    """A run of any number of shards, that never ends by itself and has a checkpoint every few seconds for a restart to go on from."""
    return {
        "name": "cluster-test",
        "env": {
            "suite": "catch",
            "tasks": ["catch_deceptive"],
            "frame_height": 6,
            "frame_width": 4,
            "action_repeat": 1,
            "frame_stack": 1,
        },
        "network": {"torso": "mlp"},
        "algorithm": {"unroll_length": 10},
        "loss": {"kind": "dice", "ablation": "dice"},
        "optimizer": {"learning_rate": learning_rate, "schedule": "constant"},
        "actor": {"environments": 16, "links": max(2, shards)},
        "learner": {"batch_size": 16 * shards, "queue_batches": 5, "log_interval_seconds": 2, "checkpoint_interval_seconds": 5},
        "bandit": {"snapshot_interval_seconds": 5},
    }


def _resources(cpu: str, memory: str, most_cpu: str, most_memory: str) -> dict[str, dict[str, str]]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": most_cpu, "memory": most_memory}}


def _switch(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = environ.get(name) or str(int(default))
    if text not in {"0", "1"}:
        raise SettingsProblemError(f"{name}={text}: 0 or 1 is needed")
    return text == "1"


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise SettingsProblemError(f"{name}={text}: a whole number above 0 is needed")
    return int(text)
