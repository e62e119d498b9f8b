"""Renders the chart with real Helms. Each rendering takes 40 ms and is cached, since most tests use the same few."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from helm.tools.fetch_tools import ENGINES, helm_program
from herd.config.run import RunSettings
from herd.service.identity import Identity
from herd.service.startup import read_command_line
from herd.topology import service_of
from tests.patience import patient

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "herd"
CI_FILES = sorted(path.name for path in (CHART / "ci").glob("*-values.yaml"))
NEWEST = ENGINES[-1]
SKIP = "SKIP_CHART_TESTS"
"""Environment variable that skips tests that need Helm, for machines that reach no package registry. Nothing else skips these tests."""

KUBE_VERSION = "1.36.0"
"""Kubernetes version to render for unless a test sets another; each Helm has a different default."""

Object = dict[str, Any]


class RenderError(AssertionError):
    """Helm refused to render; the message is Helm's."""


@cache
def helm(engine: str, *words: str) -> str:
    """Run a helm command and return its output."""
    if os.environ.get(SKIP):
        pytest.skip(f"{SKIP} is set")
    result = subprocess.run([helm_program(engine), *words], capture_output=True, text=True, timeout=patient(60), check=False)
    if result.returncode:
        raise RenderError(result.stderr)
    return result.stdout


def render(*words: str, engine: str = NEWEST, chart: Path = CHART, release: str = "herd", namespace: str = "rl") -> list[Object]:
    """Render every object of a release. ``words`` are options such as ``--set actor.replicas=7``."""
    text = helm(engine, "template", release, str(chart), "--namespace", namespace, "--kube-version", KUBE_VERSION, *words)
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def render_ci(name: str, *words: str, engine: str = NEWEST) -> list[Object]:
    """Like ``render``, with a values file of ci/."""
    return render("--values", str(CHART / "ci" / name), *words, engine=engine)


def render_all(*words: str) -> list[Object]:
    """Render every component: those of a run of one agent with several shards, and the population, which needs several agents."""
    population = render_ci("population-values.yaml", *words)
    return render_ci("multi-learner-values.yaml", *words) + [
        each for each in population if each["metadata"]["labels"].get("app.kubernetes.io/component") == "population"
    ]


def with_values(*assignments: str) -> list[str]:
    """Return the options that set values such as ``actor.replicas=7``. The right side is JSON if it parses, else text."""
    words = []
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        try:
            json.loads(value)
        except json.JSONDecodeError:
            value = json.dumps(value)
        words += ["--set-json", f"{name}={value}"]
    return words


def find(objects: list[Object], kind: str, name: str) -> Object:
    """Return the only object of this kind and name."""
    found = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{len(found)} {kind} {name} among {names(objects)}"
    return found[0]


def at(tree: Any, path: str) -> Any:
    """What a path of words leads to, with elements of lists by number or by their ``name``; None if only the last word leads nowhere."""
    *before, last = path.split()
    for word in before:
        tree = tree[word] if isinstance(tree, dict) else _named(tree)[word]
    return (tree if isinstance(tree, dict) else _named(tree)).get(last)


def _named(items: list[Any]) -> dict[str, Any]:
    return {key: each for number, each in enumerate(items) for key in (str(number), each.get("name", str(number)))}


def names(objects: list[Object]) -> set[tuple[str, str]]:
    """Kind and name of each object."""
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


def pod_of(workload: Object) -> Object:
    """The pod spec of a workload."""
    spec: Object = workload["spec"] if workload["kind"] == "Pod" else workload["spec"]["template"]["spec"]
    return spec


def container_of(workload: Object) -> Object:
    """The only container of a workload."""
    (container,) = pod_of(workload)["containers"]
    return dict(container)


def workloads(objects: list[Object]) -> list[Object]:
    """The objects that have pods."""
    return [each for each in objects if each["kind"] in {"Deployment", "StatefulSet", "Pod"}]


def read_pod(objects: list[Object], workload: Object, folder: Path) -> tuple[RunSettings, Identity]:
    """Read the experiment file and a pod's arguments and variables as its process does; fields of the pod are 0."""
    (experiment,) = [each for each in objects if each["kind"] == "ConfigMap" and each["metadata"]["name"].endswith("-experiment")]
    file = folder / "experiment.yaml"
    file.write_text(experiment["data"]["experiment.yaml"])
    container = container_of(workload)
    assert container["args"].count("--config=/etc/herd/experiment.yaml") == 1
    words = [word.replace("/etc/herd/experiment.yaml", str(file)) for word in container["args"]]
    environ = {each["name"]: each.get("value", "0") for each in container["env"]}
    return read_command_line(service_of(container["name"]), words, environ)


def settings_of(objects: list[Object], workload: Object, folder: Path) -> RunSettings:
    """The settings of a pod's process."""
    return read_pod(objects, workload, folder)[0]


def of_component(objects: list[Object], *components: str) -> list[Object]:
    """The objects with these component labels, sorted by kind and name."""
    label = "app.kubernetes.io/component"
    found = [each for each in objects if each["metadata"]["labels"].get(label) in components]
    return sorted(found, key=lambda each: (each["kind"], each["metadata"]["name"]))
