"""Every values file printed in docs/kubernetes*.md renders under both Helms, and is accepted by Kubernetes and by our processes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft7Validator

from helm.tools.fetch_tools import ENGINES
from tests.helm.rendering import ROOT, container_of, helm, of_component, pod_of, render, settings_of, with_values, workloads

pytestmark = pytest.mark.processes

PAGES = {page.stem: page.read_text() for page in sorted((ROOT / "docs").glob("kubernetes*.md"))}


def blocks(kind: str) -> dict[str, str]:
    """Blocks of YAML in the pages whose first line is this comment."""
    wanted = re.compile(rf"```yaml\n# {kind}\n(.*?)```", re.DOTALL)
    return {f"{page}-{number}": text for page, contents in PAGES.items() for number, text in enumerate(wanted.findall(contents))}


BLOCKS = blocks("values")
KUEUE = "KUEUE_CRDS"
"""Environment variable with the folder of Kueue's resource definitions (config/components/crd/bases of its repository): no package has
them, so only the nightly workflow fetches them."""


def test_the_pages_contain_values_files() -> None:
    assert len([name for name in BLOCKS if name.startswith("kubernetes-gpus")]) == 6
    assert len(BLOCKS) >= 8


@pytest.mark.parametrize(
    ("engine", "command", "options"),
    [
        ("3.17", "upgrade", {"--atomic", "--timeout"}),
        ("4", "upgrade", {"--rollback-on-failure", "--timeout", "--force-conflicts"}),
        ("4", "rollback", {"--force-conflicts"}),
    ],
)
def test_documented_options_of_helm_exist(engine: str, command: str, options: set[str]) -> None:
    assert options <= set(re.findall(r"--[a-z-]+", helm(engine, command, "--help")))
    assert all(f"`{option}" in PAGES["kubernetes"] for option in options)


@pytest.mark.parametrize("name", BLOCKS)
def test_documented_values_render_and_are_valid(name: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(BLOCKS[name])
    first, *others = ([*render("--values", str(file), engine=engine)] for engine in ENGINES)
    assert all(sorted(map(str, other)) == sorted(map(str, first)) for other in others)
    for each in first:
        kubernetes_validate.validate(each, "1.36", strict=True)
    own = {"actor", "learner", "paramserver", "test"}
    for workload in workloads(first):
        # Containers are matched by name, so a misspelt name would add another container.
        asked = {each["name"] for each in pod_of(workload)["containers"]}
        assert asked & own
        for container in pod_of(workload)["containers"]:
            # Another user's process does not get an added capability: its effective set stays empty.
            context = pod_of(workload)["securityContext"] | container.get("securityContext", {})
            assert "add" not in context.get("capabilities", {}) or context["runAsUser"] == 0
        if workload["kind"] != "Pod":
            main = workload["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"]
            (container,) = [each for each in pod_of(workload)["containers"] if each["name"] == main]
            alone = {**workload, "spec": {**workload["spec"], "template": {"spec": {"containers": [container]}}}}
            settings_of(first, alone, tmp_path)
    given = yaml.safe_load(BLOCKS[name])
    if "containers" in given.get("learner", {}).get("pod", {}):
        (learner,) = [each for each in of_component(first, "learner") if each["kind"] == "StatefulSet"]
        assert container_of(learner)["name"] == "learner"


def strict(schema: Any) -> Any:
    """The schema of a resource definition, but unknown fields are errors: the API server drops them without a word."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) and "type" in schema else {}
    return {key: strict(value) for key, value in schema.items()} | closed


def test_documented_queues_are_valid_for_kueue() -> None:
    folder = os.environ.get(KUEUE)
    if folder is None:
        pytest.skip(f"{KUEUE} is not set")
    (text,) = blocks("kueue").values()
    objects = list(yaml.safe_load_all(text))
    for each in objects:
        definition = yaml.safe_load((Path(folder) / f"kueue.x-k8s.io_{each['kind'].lower()}s.yaml").read_text())
        group, version = each["apiVersion"].split("/")
        assert group == definition["spec"]["group"]
        (served,) = [one for one in definition["spec"]["versions"] if one["name"] == version and one["served"]]
        Draft7Validator(strict(served["schema"]["openAPIV3Schema"]["properties"]["spec"])).validate(each["spec"])


def test_the_documented_queue_is_the_learners_and_covers_its_requests() -> None:
    (text,) = blocks("kueue").values()
    _, cluster_queue, local_queue = yaml.safe_load_all(text)
    assert local_queue["spec"]["clusterQueue"] == cluster_queue["metadata"]["name"]
    (values,) = [text for text in BLOCKS.values() if "kueue.x-k8s.io/queue-name: gpus" in text]
    named = yaml.safe_load(values)["learner"]["workloadLabels"]["kueue.x-k8s.io/queue-name"]
    assert named == local_queue["metadata"]["name"]
    (learner,) = [
        each for each in of_component(render(*with_values("learner.gpu.enabled=true")), "learner") if each["kind"] == "StatefulSet"
    ]
    resources = container_of(learner)["resources"]
    assert {*resources["requests"], *resources["limits"]} == set(cluster_queue["spec"]["resourceGroups"][0]["coveredResources"])


def test_pods_that_should_be_near_the_learners_name_their_labels_and_are_not_spread(tmp_path: Path) -> None:
    (text,) = [text for text in BLOCKS.values() if "podAffinity" in text]
    file = tmp_path / "values.yaml"
    file.write_text(text)
    pods = {
        each["metadata"]["name"]: each["spec"]["template"] for each in workloads(render("--values", str(file))) if each["kind"] != "Pod"
    }
    learner = pods["herd-learner"]["metadata"]["labels"]
    for name in ("herd-learner", "herd-actor"):
        assert "topologySpreadConstraints" not in pods[name]["spec"]  # zones would pull the other way
        (near,) = pods[name]["spec"]["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        term = near["podAffinityTerm"]
        assert term["labelSelector"]["matchLabels"].items() <= learner.items()
        assert all(pods[name]["metadata"]["labels"][key] == learner[key] for key in term["matchLabelKeys"])
