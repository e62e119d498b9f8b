"""A release in a real cluster, observed and disturbed through ``herd.kube``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kubernetes.client import AppsV1Api, CoreV1Api, StorageV1Api

from herd.cli.release_picture import Version, read_version
from herd.kube.cluster import Cluster, Want
from herd.kube.errors import KubeError, NotFoundError, UnreachableError
from herd.kube.pod_metrics import metrics_page
from herd.kube.pods import Pod
from herd.kube.release import Release, find_release, release_pods
from herd.telemetry import metric_names as names
from herd.telemetry.scrape import Samples, ScrapeError, parse, total
from tests.cluster.live_objects import live_objects
from tests.cluster.live_trouble import hint

T = TypeVar("T")
LOOK_SECONDS = 2.0
_CONTROLLER_SHARE = 0.05
"""Share of the time-out given to controllers: 30 s of the usual one, where controllers see a new object within a second."""
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_KILL_SECONDS = 1
"""SIGTERM is followed by SIGKILL a second later: there is no time for a last checkpoint, as when a node dies."""


class WithoutControllersError(Exception):
    """No controller creates pods of workloads in this cluster."""


class WentBackError(AssertionError):
    """A value that must only grow became smaller."""


@dataclass(frozen=True)
class Observation:
    """The run's counters at one moment; None where the process does not answer now."""

    version: tuple[int, int] | None
    """Version of the weights that the root holds: lineage and learner updates."""
    learner_frames: float | None
    """Env frames since the learner processes started, summed over all shards."""
    learner_lineage: int | None
    checkpoint_updates: float | None
    learning_rate: float | None
    connected_actors: float | None


class LiveRelease:
    """Queries the release, kills its pods, and checks that versions never decrease."""

    def __init__(self, cluster: Cluster, name: str, timeout_seconds: float, look_seconds: float = LOOK_SECONDS) -> None:
        self.cluster = cluster
        self.name = name
        self._timeout_seconds = timeout_seconds
        self._look_seconds = look_seconds
        self._greatest: tuple[int, int] | None = None

    def release(self) -> Release:
        """The release's workloads as they are now."""
        return find_release(self.cluster, self.name)

    def pods(self, component: str | None = None) -> list[Pod]:
        """The release's pods as they are now."""
        return release_pods(self.cluster, self.name, *filter(None, [component]))

    def lasting(self, component: str | None = None) -> list[Pod]:
        """The release's pods, without terminating ones."""
        return [pod for pod in self.pods(component) if pod.state != "Terminating"]

    def samples(self, pod: Pod) -> Samples | None:
        """The metrics of a pod; None if it does not answer."""
        try:
            return parse(metrics_page(self.cluster, pod.name, pod.metrics_port), pod.name)
        except (KubeError, ScrapeError):
            return None

    def component_samples(self, component: str) -> list[Samples]:
        """Samples of every pod of a component that answers."""
        return [samples for pod in self.pods(component) if (samples := self.samples(pod)) is not None]

    def observe(self) -> Observation:
        """Read the run's counters.

        Raises:
            WentBackError: the root holds an older version than it did before.
        """
        root = [read_version(samples) for samples in self.component_samples("paramserver")]
        version = _pair(root[0]) if root else None
        if version is not None:
            if self._greatest is not None and version < self._greatest:
                raise WentBackError(f"the parameter server went back from {self._greatest} to {version}")
            self._greatest = version
        learners = self.component_samples("learner")
        whole = len(learners) == len(self.pods("learner")) > 0
        lineages = [held.lineage for samples in learners if (held := read_version(samples)) is not None]
        return Observation(
            version=version,
            learner_frames=sum(total(samples, names.LEARNER_ENV_FRAMES.name) for samples in learners) if whole else None,
            learner_lineage=max(lineages) if whole and len(lineages) == len(learners) else None,
            checkpoint_updates=max((total(samples, names.CHECKPOINT_UPDATES.name) for samples in learners), default=None),
            learning_rate=max((total(samples, names.LEARNING_RATE.name) for samples in learners), default=None),
            connected_actors=max((total(samples, names.CONNECTED_ACTORS.name) for samples in learners), default=None),
        )

    def forget_versions(self) -> None:
        """Allow versions to start again: without volumes, a run begins anew when every process restarts."""
        self._greatest = None

    def until(self, what: str, look: Callable[[], T], good: Callable[[T], bool]) -> T:
        """Poll until the value is good; requests that the API server fails are repeated. Fails after the time-out."""
        deadline = time.monotonic() + self._timeout_seconds
        seen: object = "nothing"
        while True:
            try:
                found = look()
                seen = found
                if good(found):
                    return found
            except UnreachableError as error:
                seen = error
            if time.monotonic() >= deadline:
                raise AssertionError(f"not within {self._timeout_seconds:.0f} s: {what}; last seen: {seen}{self._hint()}")
            time.sleep(self._look_seconds)

    def _hint(self) -> str:
        try:
            said = hint(self.pods())
        except KubeError:
            return ""
        return f"; {said}" if said else ""

    def until_settled(self) -> Release:
        """Wait until all pods of every workload are ready and of the newest version."""
        return self.until("all pods ready", self.release, lambda release: all(each.settled for each in release.workloads))

    def until_frames_flow(self, least: float = 1.0) -> Observation:
        """Wait until learners have trained on ``least`` more frames and the root has taken newer weights."""
        first = self.until(
            "learners and root answer", self.observe, lambda seen: seen.learner_frames is not None and seen.version is not None
        )
        assert first.learner_frames is not None
        assert first.version is not None
        frames, version = first.learner_frames, first.version
        return self.until(
            f"more than {frames} frames and a version beyond {version}",
            self.observe,
            lambda seen: (seen.learner_frames or 0) >= frames + least and (seen.version or version) > version,
        )

    def kill(self, component: str, *, processes: bool = True) -> Pod:
        """Kill the first pod of a component, and wait until a new pod is ready in its place. Returns the old pod.

        Pods that are already terminating are neither killed nor counted. Without ``processes`` no pod becomes ready: the existence of
        the new pod
        is enough, and no node confirms that the old one has ended.
        """
        before = self.until(f"a {component} to kill", lambda: self.lasting(component), bool)
        victim = before[0]
        self.delete(victim.name, _KILL_SECONDS if processes else 0)

        def replaced(pods: list[Pod]) -> bool:
            return (
                victim.uid not in {pod.uid for pod in pods} and len(pods) == len(before) and all(pod.ready or not processes for pod in pods)
            )

        self.until(f"a new {component} in the place of {victim.name}", lambda: self.lasting(component), replaced)
        return victim

    def scale(self, component: str, replicas: int) -> None:
        """Set the number of replicas of a Deployment, as ``kubectl scale`` does."""
        [workload] = [each for each in self.release().workloads if each.component == component]
        request, body = AppsV1Api(self.cluster.client).patch_namespaced_deployment_scale, {"spec": {"replicas": replicas}}
        want, content_type = Want("patch", "deployments/scale", workload.name), "application/merge-patch+json"
        self.cluster.get(want, request, workload.name, self.cluster.namespace, body, _content_type=content_type)

    def leftovers(self) -> list[str]:
        """The objects that still carry the release's label, as KIND/NAME."""
        return [f"{kind}/{name}" for kind, name in live_objects(self.cluster, self.name)]

    def until_observed(self) -> None:
        """Wait a short while until a controller has seen every workload.

        Raises:
            WithoutControllersError: none did. A bare API server keeps objects, but nothing creates pods from them.
        """
        deadline = time.monotonic() + _CONTROLLER_SHARE * self._timeout_seconds
        while not all(workload.observed for workload in self.release().workloads):
            if time.monotonic() >= deadline:
                raise WithoutControllersError(f"no controller looked at {self.name}")
            time.sleep(self._look_seconds)

    def delete(self, pod: str, grace_seconds: int) -> None:
        """Delete one pod; a pod that no longer exists counts as deleted."""
        request = CoreV1Api(self.cluster.client).delete_namespaced_pod
        try:
            self.cluster.get(Want("delete", "pods", pod), request, pod, self.cluster.namespace, grace_period_seconds=grace_seconds)
        except NotFoundError:
            return


def has_default_storage(cluster: Cluster) -> bool:
    """Whether a claim without a storage class gets a volume in this cluster."""
    items = cluster.items(Want("list", "storageclasses"), StorageV1Api(cluster.client).list_storage_class)
    return any((item["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true" for item in items)


def make_namespace(cluster: Cluster, name: str) -> None:
    """Create a namespace that admits only pods of Pod Security ``restricted``."""
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    cluster.get(Want("create", "namespaces", name), CoreV1Api(cluster.client).create_namespace, body)


def make_claim(cluster: Cluster, name: str, access_mode: str) -> None:
    """Create a claim of the default storage class that is not part of the release."""
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": [access_mode], "resources": {"requests": {"storage": "1Gi"}}},
    }
    request = CoreV1Api(cluster.client).create_namespaced_persistent_volume_claim
    cluster.get(Want("create", "persistentvolumeclaims", name), request, cluster.namespace, body)


def delete_namespace(cluster: Cluster, name: str) -> None:
    """Delete the namespace and everything in it, without waiting."""
    try:
        cluster.get(Want("delete", "namespaces", name), CoreV1Api(cluster.client).delete_namespace, name)
    except NotFoundError:
        return


def _pair(version: Version | None) -> tuple[int, int] | None:
    return None if version is None else (version.lineage, version.learner_updates)
