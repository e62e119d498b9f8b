"""``herd status --release``: a release in a cluster, read twice, some seconds apart, to compute rates."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from herd.cli.options import CommandError
from herd.cli.preflight import require
from herd.config.run import StopSettings
from herd.launch.readings import ChildState, Readings
from herd.telemetry import metrics
from herd.telemetry import training as training_metrics
from herd.telemetry.scrape import ScrapeError, parse
from herd.topology import COMPONENT_NAMES
from herd.view.snapshot import AgentsSnapshotMaker, RunSnapshot
from herd.view.terminal import facts, make_table, table_console

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rich.console import Console

    from herd.kube import Cluster, Pod

SECONDS = 5.0
"""Seconds between the two readings: time for several updates of a small network, or for a few of a deep one on a GPU."""
MAX_ACTORS = 16
"""Number of actors whose metrics are read, enough for a mean wait within a few percent."""
MAX_PODS = 20
"""Largest number of pods that are listed one by one."""
NO_METRICS = "the API server, which reads metrics for this command, could not reach any pod: check that networkPolicy.metricsFrom allows it"


@dataclass(frozen=True, slots=True)
class ReleaseStatus:
    """A release at one moment."""

    release: str
    namespace: str
    components: dict[str, dict[str, Any]]
    """By component: pods wanted, ready, restarts, and the number of pods by state."""
    pods: list[Pod]
    run: RunSnapshot
    learners_answer: bool
    """Whether every shard answered. The run's numbers are sums over all shards, so they are unknown otherwise."""
    notes: list[str]
    """What could not be read, and why."""

    def as_json(self) -> dict[str, Any]:
        """Return plain types, for ``--json``. What is not known is None."""
        run = self.run
        return {
            "release": self.release,
            "namespace": self.namespace,
            "components": self.components,
            "pods": [{**asdict(pod), "created": pod.created and pod.created.isoformat()} for pod in self.pods],
            **(_numbers(run) if self.learners_answer else dict.fromkeys(_numbers(run))),
            "queue_unrolls": run.queue_unrolls,
            "learner_starved_share": run.starved_share,
            "actors_blocked_share": run.blocked_share,
            "bottleneck": run.bottleneck,
            "agents": [_numbers(agent) for agent in run.agents],
            "notes": self.notes,
        }


def show_release(options: argparse.Namespace) -> int:
    """Print the state of a release; returns the exit code."""
    if options.run_dirs:
        raise CommandError("run directories (on this machine) and --release (in a cluster) cannot be combined")
    require("kubernetes")
    from herd.kube import Cluster, KubeError  # noqa: PLC0415  local runs do without kubernetes

    try:
        cluster = Cluster(options.kubeconfig, options.context, options.namespace)
        try:
            status = read_release(cluster, options.release, SECONDS if options.seconds is None else options.seconds)
        finally:
            cluster.close()
    except KubeError as error:
        raise CommandError(str(error)) from error
    if options.json:
        print(json.dumps(status.as_json(), indent=2))
    else:
        print_release(status, table_console(), show_all=options.all)
    return 0


def read_release(cluster: Cluster, release: str, seconds: float) -> ReleaseStatus:
    """Read a release over ``seconds``; 0: without rates.

    Raises:
        KubeError: there is no such release, or access is denied. Pods that do not answer are notes in the result.

    """
    wanted, pods = cluster.replicas(release), cluster.pods(release)
    actors = [pod for pod in pods if pod.component == "actor" and pod.state == "Running"]
    spread = actors[:: max(1, math.ceil(len(actors) / MAX_ACTORS))]
    asked = [pod for pod in pods if pod.component == "learner" and pod.state == "Running"] + spread
    agents = {child: pod.agent for pod in pods if pod.component == "learner" for child in _children(pod)}
    maker = AgentsSnapshotMaker(StopSettings(), agents)
    states = [ChildState(child, pod.state, None, pod.restarts) for pod in pods for child in _children(pod)]
    if seconds:
        maker.make(_read(cluster, asked, agents)[0], states, 0.0)
        time.sleep(seconds)
    readings, notes = _read(cluster, asked, agents)
    run = maker.make(readings, states, seconds)
    answering = agents.keys() & readings.samples.keys()
    components = {
        name: {
            "wanted": number,
            "ready": sum(pod.ready for pod in pods if pod.component == name),
            "restarts": sum(pod.restarts for pod in pods if pod.component == name),
            "states": dict(Counter(pod.state for pod in pods if pod.component == name)),
        }
        for name, number in sorted(wanted.items(), key=lambda item: COMPONENT_NAMES.index(item[0]))
    }
    return ReleaseStatus(release, cluster.namespace, components, pods, run, bool(agents) and answering == agents.keys(), notes)


def _read(cluster: Cluster, pods: Sequence[Pod], agents: dict[str, int]) -> tuple[Readings, list[str]]:
    """Read metrics under the names that the processes have in a local run. Returns one note per cause of a failure."""
    samples, problems = {}, {}
    at = time.monotonic()
    processes = [(pod, child, port) for pod in pods for child, port in zip(_children(pod), pod.metrics_ports, strict=True)]
    for (pod, child, _), page in zip(processes, cluster.metrics([(pod, port) for pod, _, port in processes]), strict=True):
        try:
            if isinstance(page, bytes):
                samples[child] = parse(page, pod.name)
            else:
                problems[pod.name] = str(page)
        except ScrapeError as error:
            problems[pod.name] = str(error)
    points: list[dict[str, float]] = [{} for _ in range(max(agents.values(), default=0) + 1)]
    of_run = {"learner_updates": metrics.WEIGHTS_UPDATES, "env_frames": training_metrics.RUN_ENV_FRAMES}
    for child, agent in agents.items():
        for key, metric in of_run.items():
            number = samples.get(child, {}).get((metric.name, ()), math.nan)
            if not math.isnan(number):
                points[agent][key] = max(number, points[agent].get(key, 0.0))
    notes = [
        f"no metrics of {next(name for name, problem in problems.items() if problem == cause)}{f' and {n - 1} more' * (n > 1)}: {cause}"
        for cause, n in Counter(problems.values()).most_common(5)
    ]
    if problems and not samples:
        notes.append(NO_METRICS)
    return Readings(at=at, samples=samples, point=points[0], other_points=tuple(points[1:])), notes


def print_release(status: ReleaseStatus, console: Console, *, show_all: bool) -> None:
    """Print the run's numbers as in the local view, the components, and pods: all, or those that are not ready or were restarted."""
    console.print(f"{status.release} in namespace {status.namespace}", style="bold", highlight=False)
    if status.learners_answer:
        console.print(*facts(status.run), "", sep="\n", highlight=False)
    table = make_table("component", "ready", "restarts", "pods")
    table.columns[-1].justify = "left"
    for name, row in status.components.items():
        states = ", ".join(f"{number:,} {state}" for state, number in row["states"].items())
        table.add_row(name, f"{row['ready']:,}/{row['wanted']:,}", f"{row['restarts']:,}", states or "-")
    console.print(table, highlight=False)
    listed = [pod for pod in status.pods if show_all or not pod.ready or pod.restarts]
    listed.sort(key=lambda pod: (pod.ready, -pod.restarts) if not show_all else (False, 0))
    table = make_table("pod", "restarts", "state", "node", "")
    for column in table.columns[2:]:
        column.justify = "left"
    for pod in listed if show_all else listed[:MAX_PODS]:
        state = pod.state if pod.ready or pod.state != "Running" else "not ready"
        table.add_row(pod.name, str(pod.restarts), state, pod.node or "-", pod.trouble)
    if listed:
        console.print()
        console.print(table, highlight=False, markup=False)
    if not show_all and len(listed) > MAX_PODS:
        console.print(f"and {len(listed) - MAX_PODS:,} more (--all)", highlight=False)
    for note in status.notes:
        console.print(note, style="yellow", markup=False, soft_wrap=True)


def _numbers(run: RunSnapshot) -> dict[str, Any]:
    return {
        "env_frames": run.env_frames,
        "frames_per_second": run.frames_per_second,
        "learner_updates": run.learner_updates,
        "policy_lag": run.policy_lag,
        "tasks": [{"name": task.name, "episodes": task.episodes, "episode_return": task.episode_return} for task in run.tasks],
    }


def _children(pod: Pod) -> list[str]:
    """Return a name for each process of a pod. Only the pod of a learner has several, which are its shards."""
    if pod.rank is None:
        return [f"{pod.component}-{pod.name}"]
    here = len(pod.metrics_ports)
    return [f"{pod.component}-{pod.agent}-{pod.rank * here + local}" for local in range(here)]
