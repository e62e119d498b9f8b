"""Several groups of actors in one release: a Deployment for each, with the common values and the group's own values over them."""

from __future__ import annotations

from pathlib import Path

import pytest

from helm.tools.fetch_tools import ENGINES
from tests.helm.rendering import Object, RenderError, container_of, find, names, of_component, pod_of, render, settings_of, with_values

pytestmark = pytest.mark.processes

GROUPS = (
    'actor.nodeSelector={"disk": "ssd"}',
    "actor.spot.enabled=true",
    'actor.groups.spot={"replicas": 200, "nodeSelector": {"lifetime": "spot"}}',
    'actor.groups.fixed={"replicas": 0, "spot": {"enabled": false}, "resources": {"limits": {"cpu": "4"}}, "pod": {"hostNetwork": true}}',
)


def deployments(*words: str) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in of_component(render(*with_values(*words)), "actor") if each["kind"] == "Deployment"}


def test_each_group_is_its_own_deployment() -> None:
    found = deployments(*GROUPS)
    assert set(found) == {"herd-actor-spot", "herd-actor-fixed"}
    spot, fixed = found["herd-actor-spot"], found["herd-actor-fixed"]
    assert (spot["spec"]["replicas"], fixed["spec"]["replicas"]) == (200, 0)
    assert pod_of(spot)["nodeSelector"] == {"disk": "ssd", "lifetime": "spot"}
    assert pod_of(fixed)["nodeSelector"] == {"disk": "ssd"}
    assert "tolerations" in pod_of(spot)
    assert "tolerations" not in pod_of(fixed)  # false and 0 override too
    assert container_of(fixed)["resources"]["limits"] == container_of(spot)["resources"]["limits"] | {"cpu": "4"}
    assert (pod_of(fixed).get("hostNetwork"), pod_of(spot).get("hostNetwork")) == (True, None)
    assert container_of(fixed)["args"] == container_of(spot)["args"]


def test_deployments_select_only_their_own_pods() -> None:
    found = deployments(*GROUPS).values()
    for own in found:
        selector = own["spec"]["selector"]["matchLabels"].items()
        chosen = [each for each in found if selector <= each["spec"]["template"]["metadata"]["labels"].items()]
        assert chosen == [own]
    (alone,) = deployments().values()
    assert "herd/group" not in str(alone)  # selectors are immutable, so a release without groups keeps its old one


def test_links_per_actor_count_the_replicas_of_all_groups(tmp_path: Path) -> None:
    words = ("learner.shards=8", "experiment.learner.batch_size=64", "actor.groups.a.replicas=2", "actor.groups.b.replicas=1")
    objects = render(*with_values(*words))
    assert settings_of(objects, find(objects, "Deployment", "herd-actor-a"), tmp_path).actor.links == 6


@pytest.mark.parametrize(
    ("kind", "scaler", "bounds"), [("hpa", "HorizontalPodAutoscaler", "Replicas"), ("keda", "ScaledObject", "ReplicaCount")]
)
def test_a_group_may_have_its_own_autoscaler(kind: str, scaler: str, bounds: str, tmp_path: Path) -> None:
    scaled = '{"enabled": true, "minReplicas": 2, "maxReplicas": 300}'
    words = ("learner.shards=8", "experiment.learner.batch_size=64", f"actor.autoscaling.kind={kind}")
    objects = render(*with_values(*GROUPS, *words, f"actor.groups.spot.autoscaling={scaled}", "actor.groups.fixed.replicas=1"))
    assert [name for each, name in names(objects) if each == scaler] == ["herd-actor-spot"]
    spec = find(objects, scaler, "herd-actor-spot")["spec"]
    assert spec["scaleTargetRef"]["name"] == "herd-actor-spot"
    assert (spec[f"min{bounds}"], spec[f"max{bounds}"]) == (2, 300)
    spot, fixed = (find(objects, "Deployment", f"herd-actor-{name}") for name in ("spot", "fixed"))
    assert "replicas" not in spot["spec"]
    assert fixed["spec"]["replicas"] == 1
    assert settings_of(objects, fixed, tmp_path).actor.links == 6  # at least three actors for eight shards


def test_common_autoscaling_applies_to_each_group() -> None:
    objects = render(*with_values(*GROUPS, "actor.autoscaling.enabled=true"))
    assert {name for kind, name in names(objects) if kind == "HorizontalPodAutoscaler"} == {"herd-actor-spot", "herd-actor-fixed"}


def test_pods_of_groups_have_the_actor_component_label() -> None:
    objects = render(*with_values(*GROUPS))
    assert ("NetworkPolicy", "herd-actor") in names(objects)
    for each in of_component(objects, "actor"):
        if each["kind"] == "Deployment":
            assert each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == "actor"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("actor.groups.spot.replica=3",), "replica"),
        (("actor.groups.spot.groups.more.replicas=3",), "groups"),
        (('actor.groups={"Spot": {}}',), "Spot"),
        (('actor.groups={"a-name-that-is-too-long-here": {}}',), "a-name-that-is-too-long-here"),
        (('actor.groups.spot.autoscaling={"enabled": true, "minReplicas": 2000}',), "actor.groups.spot.autoscaling.minReplicas is above"),
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_invalid_group_values_are_refused_by_name(engine: str, words: tuple[str, ...], line: str) -> None:
    with pytest.raises(RenderError, match=line):
        render(*with_values(*words), engine=engine)
