"""The suite's settings, read from environment variables (docs/kubernetes-commands.md), and the small run that it installs."""

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
"""The setting that the upgrade changes: the learner's metrics show it, and processes with different values still accept each other."""

RUNS = ("dice", "agents", "population")
SHARED_CLAIM = "runs"
"""Volume claim shared by the members of a population and their controller; the suite creates it beside the release."""
AGENTS = 2
REPLAY_REPLICAS = 2


class SettingsProblemError(Exception):
    """The suite cannot run; the message is one line."""


@dataclass(frozen=True)
class ClusterSettings:
    """Settings of one run of the suite."""

    kubeconfig: str
    context: str | None
    helm: str
    chart: Path
    registry: str
    tag: str
    pull_policy: str
    more_values: Path | None
    run: str
    """One of the names in ``RUNS``."""
    shards: int
    access_mode: str
    """Access mode of ``SHARED_CLAIM``."""
    keep: bool
    """Whether the namespace is kept afterwards."""
    timeout_seconds: int

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
            run=_choice(environ, "CLUSTER_RUN", RUNS),
            shards=_number(environ, "CLUSTER_SHARDS", 1),
            access_mode=environ.get("CLUSTER_ACCESS_MODE") or "ReadWriteMany",
            keep=_switch(environ, "CLUSTER_KEEP", default=False),
            timeout_seconds=_number(environ, "CLUSTER_TIMEOUT_SECONDS", 600),
        )

    def pods(self) -> dict[str, int]:
        """Number of pods of each component of the run."""
        return self.pods_of(self.run, self.shards)

    @staticmethod
    def pods_of(run: str, shards: int) -> dict[str, int]:
        """Number of pods of each component of a run."""
        common = {"paramserver": 1, "paramserver-replica": 1, "actor": ACTORS}
        own = {
            "dice": {"learner": shards, "bandit": 1},
            "agents": {"learner": AGENTS * shards, "replay": REPLAY_REPLICAS, "evaluator": 1},
            "population": {"learner": AGENTS * shards, "population": 1},
        }
        return common | own[run]

    def values(self, *, volumes: bool, learning_rate: float = LEARNING_RATE) -> dict[str, Any]:
        """Values of the chart for a run on CPUs in pods that fit a cluster on a laptop.

        ``volumes``: keep the files of learner, bandit and replay on volumes of the default storage class, deleted with the release.
        """
        volume = {"enabled": volumes, "size": "1Gi", "retention": {"whenDeleted": "Delete"}}
        members = {"existingClaim": SHARED_CLAIM} if self.run == "population" else volume
        return {
            "image": {"registry": self.registry, "tag": self.tag, "pullPolicy": self.pull_policy},
            "experiment": experiment(learning_rate, self.shards, self.run),
            "actor": {"replicas": ACTORS, "resources": _resources("100m", "384Mi", "1", "1Gi")},
            "learner": {
                "shards": self.shards,
                "sharedMemory": "64Mi",
                "scratch": "1Gi",
                "persistence": members,
                "resources": _resources("200m", "512Mi", "2", "2Gi"),
            },
            "paramserver": {"resources": _resources("50m", "96Mi", "500m", "512Mi")},
            "paramserverReplica": {"replicas": 1, "resources": _resources("50m", "96Mi", "500m", "512Mi")},
            "bandit": {"persistence": volume, "resources": _resources("50m", "96Mi", "500m", "512Mi")},
            "replay": {"persistence": volume, "scratch": "256Mi", "resources": _resources("50m", "128Mi", "500m", "512Mi")},
            "population": {"resources": _resources("50m", "96Mi", "500m", "512Mi")},
            "evaluator": {"resources": _resources("100m", "384Mi", "1", "1Gi")},
        }


def experiment(learning_rate: float, shards: int, run: str = "dice") -> dict[str, Any]:
    """A run with any number of shards that never ends by itself and saves a checkpoint every few seconds, so that it can be resumed."""
    common: dict[str, Any] = {
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
        "optimizer": {"learning_rate": learning_rate, "schedule": "constant"},
        "actor": {"environments": 16, "links": max(2, shards)},
        "learner": {"batch_size": 16 * shards, "queue_batches": 5, "log_interval_seconds": 2, "checkpoint_interval_seconds": 5},
    }
    if run == "agents":
        return common | {
            "agents": AGENTS,
            "replay": {"kind": "shared", "fraction": 0.5, "capacity_agent_steps": 100_000, "minimum_fill_agent_steps": 1_000},
            "replay_service": {"replicas": REPLAY_REPLICAS, "memory_bytes": 64 << 20, "snapshot_interval_seconds": 5},
            "evaluation": {"interval_seconds": 10},
        }
    if run == "population":
        return common | {
            "agents": AGENTS,
            "sweep": {"loss.entropy_cost": {"draw": "log_uniform", "low": 1.0e-3, "high": 1.0e-1}},
            "population": {"strategy": "pbt", "fitness": "episode_return", "fitness_episodes": 200, "burn_in_env_frames": 0},
        }
    return common | {"loss": {"kind": "dice", "ablation": "dice"}, "bandit": {"snapshot_interval_seconds": 5}}


def _choice(environ: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    text = environ.get(name) or known[0]
    if text not in known:
        raise SettingsProblemError(f"{name}={text}: one of {', '.join(known)} is needed")
    return text


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
