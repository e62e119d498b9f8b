"""The chart, rendered by real Helms. Each rendering is made once and kept: 40 ms each, and most tests ask for the same few."""

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
from herd.config.arguments import split_arguments
from herd.config.loading import load_settings
from herd.config.settings import RunSettings
from tests.patience import patient

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "herd"
CI_FILES = sorted(path.name for path in (CHART / "ci").glob("*-values.yaml"))
NEWEST = ENGINES[-1]
SKIP = "SKIP_CHART_TESTS"
"""Set, it skips whatever needs Helm: for a machine that reaches no package registry. Nothing else skips these tests."""

KUBE_VERSION = "1.36.0"
"""Of the cluster that is rendered for, unless a test says otherwise: each Helm has another one of its own in mind."""

Object = dict[str, Any]


class RenderError(AssertionError):
    """Helm refused; its message."""


@cache
def helm(engine: str, *words: str) -> str:
    """What Helm says to a command."""
    if os.environ.get(SKIP):
        pytest.skip(f"{SKIP} is set")
    result = subprocess.run([helm_program(engine), *words], capture_output=True, text=True, timeout=patient(60), check=False)
    if result.returncode:
        raise RenderError(result.stderr)
    return result.stdout


def render(*words: str, engine: str = NEWEST, chart: Path = CHART, release: str = "herd", namespace: str = "rl") -> list[Object]:
    """Every object of a release; ``words`` such as ``--set actor.replicas=7``."""
    text = helm(engine, "template", release, str(chart), "--namespace", namespace, "--kube-version", KUBE_VERSION, *words)
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def render_ci(name: str, *words: str, engine: str = NEWEST) -> list[Object]:
    """As ``render``, of a file of ci/."""
    return render("--values", str(CHART / "ci" / name), *words, engine=engine)


def render_all(*words: str) -> list[Object]:
    """Every component: those of a run of one agent, of several shards, and the population, which only a run of several agents has."""
    population = render_ci("population-values.yaml", *words)
    return render_ci("multi-learner-values.yaml", *words) + [
        each for each in population if each["metadata"]["labels"].get("app.kubernetes.io/component") == "population"
    ]


def with_values(*assignments: str) -> list[str]:
    """Words that set values: ``actor.replicas=7``; the right side is JSON where it can be, else text."""
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
    """The one of this kind and name."""
    found = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{len(found)} {kind} {name} among {names(objects)}"
    return found[0]


def names(objects: list[Object]) -> set[tuple[str, str]]:
    """Kind and name of each."""
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


def pod_of(workload: Object) -> Object:
    """The pod's spec."""
    spec: Object = workload["spec"] if workload["kind"] == "Pod" else workload["spec"]["template"]["spec"]
    return spec


def container_of(workload: Object) -> Object:
    """Its only container."""
    (container,) = pod_of(workload)["containers"]
    return dict(container)


def workloads(objects: list[Object]) -> list[Object]:
    """Whatever has pods."""
    return [each for each in objects if each["kind"] in {"Deployment", "StatefulSet", "Pod"}]


def settings_of(objects: list[Object], workload: Object, folder: Path) -> RunSettings:
    """What a pod's process reads: the experiment file and its arguments, through the program's own loader."""
    (experiment,) = [each for each in objects if each["kind"] == "ConfigMap" and each["metadata"]["name"].endswith("-experiment")]
    file = folder / "experiment.yaml"
    file.write_text(experiment["data"]["experiment.yaml"])
    files, overrides = split_arguments(container_of(workload)["args"], file_option="--config")
    assert files == [Path("/etc/herd/experiment.yaml")]
    return load_settings([file], overrides, {})


def of_component(objects: list[Object], *components: str) -> list[Object]:
    """Those labelled so, in an order of their own."""
    label = "app.kubernetes.io/component"
    found = [each for each in objects if each["metadata"]["labels"].get(label) in components]
    return sorted(found, key=lambda each: (each["kind"], each["metadata"]["name"]))
