"""The chart as a dependency of another chart, and requirements of users and Kubernetes versions."""

from __future__ import annotations

from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from helm.tools.fetch_tools import ENGINES
from tests.helm.rendering import CHART, RenderError, find, names, render, with_values

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("engine", ENGINES)
def test_a_parent_chart_sets_its_values(tmp_path: Path, engine: str) -> None:
    chart = tmp_path / "platform"
    (chart / "charts").mkdir(parents=True)
    (chart / "charts" / "herd").symlink_to(CHART)
    dependencies = [{"name": "herd", "version": "*"}]
    (chart / "Chart.yaml").write_text(
        yaml.safe_dump({"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": dependencies})
    )
    (chart / "values.yaml").write_text(yaml.safe_dump({"global": {"own": 1}, "herd": {"actor": {"replicas": 7}}}))
    assert find(render(chart=chart, engine=engine), "Deployment", "herd-actor")["spec"]["replicas"] == 7


SUBJECT = '[{"kind": "Group", "name": "rl", "apiGroup": "rbac.authorization.k8s.io"}]'


def test_the_user_role_is_created_on_request() -> None:
    assert not {kind for kind, _ in names(render())} & {"Role", "RoleBinding"}
    assert ("RoleBinding", "herd-user") not in names(render(*with_values("userRole.create=true")))
    objects = render(*with_values("userRole.create=true", f"userRole.subjects={SUBJECT}"))
    role, binding = find(objects, "Role", "herd-user"), find(objects, "RoleBinding", "herd-user")
    for each in (role, binding):
        kubernetes_validate.validate(each, "1.36", strict=True)
    allowed = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    # What the notes and docs/kubernetes-commands.md run: logs, scale, port-forward, exec, and delete for the pod of the self-test.
    assert {("pods/log", "get"), ("deployments/scale", "patch"), ("pods/portforward", "create"), ("pods/exec", "create")} <= allowed
    assert [rule["resourceNames"] for rule in role["rules"] if "delete" in rule["verbs"]] == [["herd-test"]]
    assert binding["roleRef"]["name"] == "herd-user"
    assert binding["subjects"] == yaml.safe_load(SUBJECT)


@pytest.mark.parametrize(
    ("version", "given", "written"),
    [
        ("1.33.9", "PreferSameZone", "PreferClose"),
        ("1.33.9", "PreferClose", "PreferClose"),
        ("1.34.0", "PreferClose", "PreferSameZone"),
        ("1.34.0-eks-7f9249a", "PreferSameZone", "PreferSameZone"),
        ("1.36.2", "PreferSameNode", "PreferSameNode"),
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_traffic_distribution_uses_the_name_known_to_the_cluster(engine: str, version: str, given: str, written: str) -> None:
    chosen = (f"{component}.trafficDistribution={given}" for component in ("paramserverReplica", "inference"))
    words = with_values("paramserverReplica.replicas=2", "experiment.actor.inference=remote", *chosen)
    objects = render("--kube-version", version, *words, engine=engine)
    for name in ("herd-paramserver-replica", "herd-inference"):
        assert find(objects, "Service", name)["spec"]["trafficDistribution"] == written


def test_traffic_distribution_unknown_to_the_cluster_is_refused() -> None:
    words = with_values("paramserverReplica.replicas=2", "paramserverReplica.trafficDistribution=PreferSameNode")
    with pytest.raises(RenderError, match=r"PreferSameNode needs Kubernetes 1\.34"):
        render("--kube-version", "1.33.0", *words)
