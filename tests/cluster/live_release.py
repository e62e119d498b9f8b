"""A release in a real cluster: installed with helm, observed through ``herd.kube``, and disturbed."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from kubernetes.client import AppsV1Api, CoreV1Api
from kubernetes.client.exceptions import ApiException

from herd.kube import RELEASE_LABEL, Cluster, KubeError, Pod
from herd.telemetry import metrics
from herd.telemetry import training as training_metrics
from herd.telemetry.scrape import Samples, parse, total
from tests.cluster.cluster_settings import ClusterSettings

T = TypeVar("T")
NAME = "herd"
LOOK_SECONDS = 2.0
KILL_SECONDS = 1
"""SIGTERM is followed by SIGKILL a second later: there is no time for a last checkpoint, as when a node dies."""
MARGIN_SECONDS = 60
"""Helm ends by its own --timeout. If it runs this much longer, something else is wrong."""


class HelmError(Exception):
    """Helm's exit code was not 0; the message has its output."""


class LiveRelease:
    """The release ``herd`` of one namespace."""

    def __init__(self, cluster: Cluster, settings: ClusterSettings, folder: Path, *, volumes: bool) -> None:
        self.cluster = cluster
        self.settings = settings
        self.volumes = volumes
        self._folder = folder
        self._greatest = (0.0, 0.0)

    def helm(self, command: str, *words: str, values: Mapping[str, Any] | None = None) -> str:
        """Run ``helm COMMAND herd WORDS``, with a file of values, until all is ready."""
        if values is not None:
            file = self._folder / "values.yaml"
            file.write_text(yaml.safe_dump(dict(values)))
            words = (str(self.settings.chart), "--values", str(file), *words)
            words += ("--values", str(self.settings.more_values)) if self.settings.more_values else ()
        wait = [] if command == "test" else ["--wait"]
        context = ["--kube-context", self.settings.context] if self.settings.context else []
        limit = self.settings.timeout_seconds
        done = subprocess.run(
            [self.settings.helm, command, NAME, *words, *wait, "--timeout", f"{limit}s", "--namespace", self.cluster.namespace, *context],
            capture_output=True,
            text=True,
            timeout=limit + MARGIN_SECONDS,
            check=False,
            env={**os.environ, "KUBECONFIG": self.settings.kubeconfig},
        )
        if done.returncode != 0:
            raise HelmError(f"helm {command} ended with {done.returncode}:\n{done.stdout}{done.stderr}\n{self.describe()}")
        return done.stdout

    def pods(self, component: str | None = None) -> list[Pod]:
        """The release's pods, without terminating ones."""
        return [pod for pod in self.cluster.pods(NAME, *filter(None, [component])) if pod.state != "Terminating"]

    def samples(self, component: str) -> dict[Pod, Samples]:
        """The metrics of the pods of a component; KubeError if one does not answer."""
        pods = self.pods(component)
        found = {}
        for pod, page in zip(pods, self.cluster.metrics([(pod, pod.metrics_ports[0]) for pod in pods]), strict=True):
            if isinstance(page, KubeError):
                raise page
            found[pod] = parse(page, pod.name)
        return found

    def sums(self, component: str, metric: str) -> dict[int, float]:
        """A metric of a component, summed over the pods of each agent."""
        found: dict[int, float] = {}
        for pod, samples in self.samples(component).items():
            found[pod.agent] = found.get(pod.agent, 0.0) + total(samples, metric)
        return found

    def version(self) -> tuple[float, float]:
        """Lineage and learner updates of the weights that the root holds. It must never go back."""
        (samples,) = self.samples("paramserver").values()
        held = (samples.get((metrics.WEIGHTS_LINEAGE.name, ()), math.nan), samples.get((metrics.WEIGHTS_UPDATES.name, ()), math.nan))
        if math.isnan(samples.get((metrics.WEIGHTS_AGE.name, ()), math.nan)):
            return (0.0, 0.0)  # the server restarted and holds no weights yet
        assert held >= self._greatest
        self._greatest = held
        return held

    def starts(self, component: str) -> set[tuple[str, int]]:
        """Start counts that change whenever a pod of the component is replaced or its container restarts."""
        return {(pod.uid, pod.restarts) for pod in self.pods(component)}

    def until(self, what: str, look: Callable[[], T], good: Callable[[T], bool]) -> T:
        """Poll until the value is good. A request that fails is repeated."""
        deadline = time.monotonic() + self.settings.timeout_seconds
        seen: object = "nothing"
        while True:
            try:
                if good(found := look()):
                    return found
                seen = found
            except KubeError as error:
                seen = error
            assert time.monotonic() < deadline, f"not in time: {what}; last seen: {seen}"
            time.sleep(LOOK_SECONDS)

    def until_settled(self) -> None:
        """Wait until exactly the requested pods exist and are ready."""

        def settled() -> bool:
            pods = self.pods()
            counted = {name: sum(pod.component == name for pod in pods) for name in self.cluster.replicas(NAME)}
            return counted == dict(self.cluster.replicas(NAME)) and all(pod.ready for pod in pods)

        self.until("all pods ready", settled, bool)

    def until_grown(self, component: str, metric: str) -> None:
        """Wait until a metric of every agent has grown."""
        before = self.until(f"{metric} of every pod", lambda: self.sums(component, metric), bool)
        self.until(
            f"more {metric} than {before}",
            lambda: self.sums(component, metric),
            lambda now: now.keys() == before.keys() and all(now[agent] > before[agent] for agent in before),
        )

    def until_training(self) -> None:
        """Wait until every agent has trained on more frames and, in a run with one agent, the root holds newer weights."""
        self.until_grown("learner", training_metrics.LEARNER_ENV_FRAMES.name)
        if self.settings.run == "dice":
            before = self._greatest
            self.until("newer weights", self.version, lambda now: now > before)

    def kill(self, component: str) -> Pod:
        """Kill the first pod of a component, and wait until a new pod is ready in its place. Returns the old pod."""
        before = self.until(f"a {component} to kill", lambda: self.pods(component), bool)
        victim = before[0]
        self.delete(victim.name, KILL_SECONDS)
        self.until(
            f"a new {component} in the place of {victim.name}",
            lambda: self.pods(component),
            lambda pods: victim.uid not in {pod.uid for pod in pods} and len(pods) == len(before) and all(pod.ready for pod in pods),
        )
        return victim

    def delete(self, pod: str, grace_seconds: int) -> None:
        CoreV1Api(self.cluster.client).delete_namespaced_pod(pod, self.cluster.namespace, grace_period_seconds=grace_seconds)

    def scale(self, replicas: int) -> None:
        """Set the number of actors, as ``kubectl scale`` does, and wait for them."""
        body = {"spec": {"replicas": replicas}}
        AppsV1Api(self.cluster.client).patch_namespaced_deployment_scale(f"{NAME}-actor", self.cluster.namespace, body)
        self.until(f"{replicas} actors", lambda: self.pods("actor"), lambda pods: len(pods) == replicas)
        self.until_settled()

    def leftovers(self) -> list[str]:
        """Objects that still carry the release's label."""
        core, apps = CoreV1Api(self.cluster.client), AppsV1Api(self.cluster.client)
        requests = [getattr(core, f"list_namespaced_{kind}") for kind in ("pod", "service", "config_map", "secret", "service_account")]
        requests += [core.list_namespaced_persistent_volume_claim, apps.list_namespaced_deployment, apps.list_namespaced_stateful_set]
        options = {"label_selector": f"{RELEASE_LABEL}={NAME}"}
        return [item["metadata"]["name"] for request in requests for item in self.cluster.items("list objects", request, **options)]

    def last_lines(self, pod: str, *, previous: bool = False) -> str:
        """Last log lines of a pod's only container, or of the ``previous`` one."""
        try:
            log: str = CoreV1Api(self.cluster.client).read_namespaced_pod_log(pod, self.cluster.namespace, tail_lines=15, previous=previous)
        except ApiException as error:
            return f"no log: {error.reason}"
        return log

    def describe(self) -> str:
        """List the pods with state and reason, then the last log lines of those in trouble. Never raises on a failed request."""
        try:
            pods = self.cluster.pods(NAME)
        except KubeError as error:
            return f"pods cannot be listed: {error}"
        said = [f"{pod.name}: {pod.state}, ready {pod.ready}, {pod.restarts} restarts: {pod.trouble}" for pod in pods]
        for pod in [pod for pod in pods if not pod.ready or pod.restarts][:8]:
            said += [f"--- {pod.name}", self.last_lines(pod.name, previous=pod.restarts > 0)]
        return "\n".join(said)
