"""Computes what ``herd status --release`` shows from the answers of the API server and the pods. No input or output."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from herd.config.settings import StopSettings
from herd.launch.readings import ChildState, Readings
from herd.telemetry import metric_names as names
from herd.view.snapshot import AgentsSnapshotMaker, RunSnapshot, TaskRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from herd.kube.pods import Pod
    from herd.kube.release import Release, Workload
    from herd.telemetry.scrape import Samples


@dataclass(frozen=True, slots=True)
class Version:
    """A policy version and how long its holder has had it (for a learner: the time since it was published)."""

    lineage: int
    learner_updates: int
    age_seconds: float | None


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod and what it reports about itself."""

    pod: Pod
    version: Version | None
    """None: the pod was not asked, did not answer, or has no weights yet."""


@dataclass(frozen=True, slots=True)
class ComponentRow:
    """A component of the release. It has several workloads if there are groups of actors or learners of several agents."""

    component: str
    kind: str
    wanted: int
    ready: int
    restarts: int
    states: Mapping[str, int]
    """Number of pods by state."""


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One member of a population, as its controller has it."""

    agent: int
    fitness: float | None
    """None: not reported yet."""
    settings: Mapping[str, float]
    """Numbers among those that differ between members."""


@dataclass(frozen=True, slots=True)
class ReleasePicture:
    """A release at one moment."""

    release: Release
    taken: datetime
    components: tuple[ComponentRow, ...]
    rows: tuple[PodRow, ...]
    run: RunSnapshot
    learners_answer: bool
    """Whether every shard answered. The run's numbers are sums over all shards, so they are unknown otherwise."""
    actors_asked: int
    """Number of actors whose waits are in ``run``: a sample of all actors."""
    members: tuple[MemberRow, ...]
    """Members of a population, if its controller answers."""
    notes: tuple[str, ...]
    """What could not be read, and why."""

    def as_json(self) -> dict[str, Any]:
        """Return it in plain types, for ``--json``."""
        run = self.run
        return {
            "release": self.release.name,
            "namespace": self.release.namespace,
            "taken": self.taken.isoformat(),
            "components": {row.component: {**asdict(row), "states": dict(row.states)} for row in self.components},
            "pods": [_pod_json(row, self.taken) for row in self.rows],
            "env_frames_since_learner_start": run.env_frames if self.learners_answer else None,
            "frames_per_second": run.frames_per_second,
            "learner_updates": run.learner_updates,
            "policy_lag": run.policy_lag,
            "queue_unrolls": run.queue_unrolls,
            "queue_capacity_unrolls": run.queue_capacity,
            "learner_starved_share": run.starved_share,
            "actors_blocked_share": run.blocked_share,
            "actors_weights_wait_share": run.weights_wait_share,
            "bottleneck": run.bottleneck,
            "actors_asked": self.actors_asked,
            "tasks": [_task(task) for task in run.tasks],
            "agents": [_agent(agent) for agent in run.agents],
            "members": [{**asdict(member), "settings": dict(member.settings)} for member in self.members],
            "failed_writes": run.failed_writes,
            "notes": list(self.notes),
        }


def _agent(run: RunSnapshot) -> dict[str, Any]:
    return {
        "env_frames_since_learner_start": run.env_frames,
        "frames_per_second": run.frames_per_second,
        "learner_updates": run.learner_updates,
        "tasks": [_task(task) for task in run.tasks],
    }


def _task(task: TaskRow) -> dict[str, Any]:
    return {
        "name": task.name,
        "episodes": task.episodes,
        "episode_return": task.episode_return,
        "env_frames_since_learner_start": task.env_frames,
    }


def make_picture(release: Release, pods: Sequence[Pod], looks: Sequence[Readings], notes: Sequence[str], taken: datetime) -> ReleasePicture:
    """Compute the picture of a release.

    Args:
        release: the release with its workloads.
        pods: all pods, in order.
        looks: one or more readings by pod name, some seconds apart. Rates need two.
        notes: what could not be read.
        taken: the present time.

    """
    children = {pod.name: _child_name(pod) for pod in pods}
    states = [ChildState(children[pod.name], pod.state, None, pod.restarts) for pod in pods]
    ages = [age for pod in pods if pod.component == "learner" and (age := pod.age_seconds(taken)) is not None]
    agents = {children[pod.name]: pod.agent for pod in pods if pod.component == "learner"}
    maker = AgentsSnapshotMaker(StopSettings(), agents)
    newest = looks[-1]
    runs = [maker.make(_by_child(look, children, agents), states, max(ages, default=0.0)) for look in looks]
    return ReleasePicture(
        release=release,
        taken=taken,
        components=_component_rows(release.workloads, pods),
        rows=tuple(PodRow(pod, read_version(newest.samples.get(pod.name, {}))) for pod in pods),
        run=runs[-1],
        learners_answer=all(pod.name in newest.samples for pod in pods if pod.component == "learner") and bool(ages),
        actors_asked=sum(pod.component == "actor" and pod.name in newest.samples for pod in pods),
        members=_members([newest.samples[pod.name] for pod in pods if pod.component == "population" and pod.name in newest.samples]),
        notes=tuple(notes),
    )


def read_version(samples: Samples) -> Version | None:
    """Return the policy version that a process holds; None before its first version."""
    lineage, updates = (samples.get((metric.name, ()), math.nan) for metric in (names.WEIGHTS_LINEAGE, names.WEIGHTS_UPDATES))
    age = samples.get((names.WEIGHTS_AGE.name, ()), math.nan)
    if math.isnan(lineage) or math.isnan(updates) or math.isnan(age):  # the age is NaN before the first version
        return None
    return Version(int(lineage), int(updates), age)


def _members(controllers: Sequence[Samples]) -> tuple[MemberRow, ...]:
    fitness: dict[int, float] = {}
    settings: dict[int, dict[str, float]] = {}
    for samples in controllers:
        for (name, pairs), value in samples.items():
            labels = dict(pairs)
            if not (agent := labels.get("agent", "")).isdecimal():
                continue
            if name == names.POPULATION_FITNESS.name:
                fitness[int(agent)] = value
            elif name == names.POPULATION_SETTING.name:
                settings.setdefault(int(agent), {})[labels.get("setting", "")] = value
    return tuple(MemberRow(agent, fitness.get(agent), settings.get(agent, {})) for agent in sorted(fitness.keys() | settings.keys()))


def _by_child(look: Readings, children: Mapping[str, str], agents: Mapping[str, int]) -> Readings:
    """Return the readings under the names of a local run: ``learner-0-1``, ``actor-herd-actor-5d9f-x2x``."""
    samples = {children[name]: each for name, each in look.samples.items() if name in children}
    points: list[dict[str, int]] = [{} for _ in range(max(agents.values(), default=0) + 1)]
    for name, agent in agents.items():
        if name in samples and (version := read_version(samples[name])) is not None:
            points[agent]["learner_updates"] = max(version.learner_updates, points[agent].get("learner_updates", 0))
    return Readings(at=look.at, samples=samples, point=points[0], other_points=tuple(points[1:]))


def _child_name(pod: Pod) -> str:
    if pod.rank is None:
        return f"{pod.component}-{pod.name}"
    return f"{pod.component}-{pod.agent}-{pod.rank}"


def _component_rows(workloads: Sequence[Workload], pods: Sequence[Pod]) -> tuple[ComponentRow, ...]:
    rows = []
    for component in dict.fromkeys(workload.component for workload in workloads):
        own = [pod for pod in pods if pod.component == component]
        parts = [workload for workload in workloads if workload.component == component]
        rows.append(
            ComponentRow(
                component=component,
                kind=parts[0].kind,
                wanted=sum(workload.wanted for workload in parts),
                ready=sum(pod.ready for pod in own),
                restarts=sum(pod.restarts for pod in own),
                states=Counter(pod.state for pod in own),
            )
        )
    return tuple(rows)


def _pod_json(row: PodRow, now: datetime) -> dict[str, Any]:
    pod = row.pod
    return {
        "name": pod.name,
        "component": pod.component,
        "agent": pod.agent,
        "rank": pod.rank,
        "state": pod.state,
        "ready": pod.ready,
        "restarts": pod.restarts,
        "node": pod.node,
        "age_seconds": pod.age_seconds(now),
        "trouble": pod.trouble,
        "version": None if row.version is None else asdict(row.version),
    }
