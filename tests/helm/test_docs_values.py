"""Every values file printed in docs/kubernetes*.md renders under both Helms, and is accepted by Kubernetes and by our processes."""

from __future__ import annotations

import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from helm.tools.fetch_tools import ENGINES
from tests.helm.rendering import ROOT, container_of, of_component, pod_of, render, settings_of, workloads

pytestmark = pytest.mark.processes

_BLOCK = re.compile(r"```yaml\n# values\n(.*?)```", re.DOTALL)
BLOCKS = {
    f"{page.stem}-{number}": text
    for page in sorted((ROOT / "docs").glob("kubernetes*.md"))
    for number, text in enumerate(_BLOCK.findall(page.read_text()))
}


def test_the_pages_contain_values_files() -> None:
    assert len([name for name in BLOCKS if name.startswith("kubernetes-gpus")]) == 6
    assert len(BLOCKS) >= 8


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
