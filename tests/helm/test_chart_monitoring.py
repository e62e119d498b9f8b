"""Monitoring objects are created only on request, with the labels that rules and dashboards use."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import yaml

from helm.tools.fetch_tools import ENGINES, resource_validators
from tests.helm.rendering import CHART, Object, find, render, render_ci, with_values
from tests.patience import patient

pytestmark = pytest.mark.processes

_PACKAGES = {"monitoring.coreos.com/v1": "prometheus-operator", "keda.sh/v1alpha1": "keda"}
_VALIDATE = """
import { readFileSync } from "node:fs";
for (const [module, object] of JSON.parse(readFileSync(0, "utf8"))) {
  const { validate } = await import(module);
  if (!validate(object)) { console.log(JSON.stringify(validate.errors)); process.exitCode = 1; }
}
"""


EVERYTHING = with_values(
    "monitoring.podMonitor.enabled=true", "monitoring.prometheusRule.enabled=true", "monitoring.dashboard.enabled=true"
)


def errors_of(*objects: Object) -> str:
    """Errors from validators built from the projects' own definitions; empty if the objects are valid."""
    root = resource_validators()
    pairs = []
    for each in objects:
        package = root / "node_modules" / "@kubernetes-models" / _PACKAGES[each["apiVersion"]] / "_schemas"
        (module,) = [path for path in package.glob(f"*{each['kind']}.js") if path.stem.endswith(f"1{each['kind']}")]
        pairs.append([str(module), each])
    command = ["node", "--input-type=module", "--eval", _VALIDATE]
    result = subprocess.run(command, input=json.dumps(pairs), cwd=root, capture_output=True, text=True, timeout=patient(60), check=False)
    assert result.returncode in (0, 1), result.stderr
    assert not result.stderr
    return result.stdout


def test_custom_resources_are_valid() -> None:
    objects = render(*EVERYTHING, *with_values("actor.autoscaling.enabled=true", "actor.autoscaling.kind=keda"))
    custom = [each for each in objects if each["apiVersion"] in _PACKAGES]
    assert {each["kind"] for each in custom} == {"PodMonitor", "PrometheusRule", "ScaledObject"}
    assert errors_of(*custom) == ""
    custom[0]["spec"]["podMetricsEndpoints" if custom[0]["kind"] == "PodMonitor" else "groups"] = "nonsense"
    assert errors_of(custom[0]) != ""


@pytest.mark.parametrize("engine", ENGINES)
def test_rules_and_dashboard_equal_the_files(engine: str) -> None:
    objects = render(*EVERYTHING, engine=engine)
    rules = find(objects, "PrometheusRule", "herd")["spec"]["groups"]
    texts = [(CHART / "files" / name).read_text() for name in ("recording-rules.yaml", "alert-rules.yaml")]
    # Helm must not interpret Prometheus' own templates.
    expected = [yaml.safe_load(text.replace('release!=""', 'namespace="rl", release="herd"'))["groups"] for text in texts]
    assert rules == [group for groups in expected for group in groups]
    board = find(objects, "ConfigMap", "herd-dashboard")
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(board["data"]["herd-dashboard.json"]) == json.loads((CHART / "files" / "herd-dashboard.json").read_text())


def test_targets_get_the_agreed_labels_and_learners_their_agent() -> None:
    monitor = find(render_ci("gpu-values.yaml"), "PodMonitor", "herd")
    assert monitor["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert {each["targetLabel"] for each in endpoint["relabelings"]} == {"namespace", "release", "component", "pod", "agent"}
    assert (endpoint["port"], endpoint["path"]) == ("metrics", "/metrics")

    def agent(component: str, pod_labels: dict[str, str]) -> str:
        """The label as Prometheus' relabelling makes it."""
        labels = {"component": component, **{f"__meta_kubernetes_pod_label_{key}": value for key, value in pod_labels.items()}}
        for rule in endpoint["relabelings"]:
            value = ";".join(labels.get(name, "") for name in rule["sourceLabels"])
            if rule["targetLabel"] == "agent" and (found := re.fullmatch(rule.get("regex", "(.*)"), value)):
                labels["agent"] = rule.get("replacement", "$1").replace("$1", found[1] if found.groups() else "")
        return labels.get("agent", "")

    assert agent("learner", {"herd_agent": "3"}) == "3"
    assert agent("learner", {}) == "0"
    assert agent("bandit", {}) == ""  # its series name their agent themselves
