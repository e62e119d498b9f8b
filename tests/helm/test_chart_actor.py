"""Actors: a Deployment of interchangeable pods, or one for each group with the group's own values over the common ones."""

from __future__ import annotations

from pathlib import Path

import promql_parser
import pytest
import yaml
from herd_actor.actor import DRAIN_SECONDS

from tests.helm.rendering import (
    CHART,
    ROOT,
    Object,
    container_of,
    find,
    names,
    of_component,
    pod_of,
    render,
    render_ci,
    settings_of,
    with_values,
)

pytestmark = pytest.mark.processes


def test_the_documented_autoscaling_query_matches_the_chart() -> None:
    objects = render(*with_values("actor.autoscaling.enabled=true", "actor.autoscaling.kind=keda"))
    query = find(objects, "ScaledObject", "herd-actor")["spec"]["triggers"][0]["metadata"]["query"].strip()
    entry = (ROOT / "docs" / "kubernetes.md").read_text().partition("```yaml\nexternalRules:")[2].partition("```\n")[0]
    (rule,) = yaml.safe_load(entry)
    assert rule["metricsQuery"].strip().replace("<<.LabelMatchers>>", 'namespace="rl",release="herd"') == query
    assert rule["name"]["as"] == yaml.safe_load((CHART / "values.yaml").read_text())["actor"]["autoscaling"]["metricName"]


@pytest.mark.parametrize(
    ("words", "links"),
    [
        (("learner.shards=8", "actor.replicas=2"), 7),  # actors 0 and 1 start at shards 0 and 1
        (("learner.shards=8", "actor.replicas=8"), 2),
        (("learner.shards=8", "actor.replicas=2", "experiment.actor.links=8"), 8),
        (("learner.shards=6", "actor.autoscaling.enabled=true", "actor.autoscaling.minReplicas=4"), 3),
    ],
)
def test_links_per_actor_cover_every_shard(words: tuple[str, ...], links: int, tmp_path: Path) -> None:
    objects = render(*with_values(*words, "experiment.learner.batch_size=64"))
    assert settings_of(objects, find(objects, "Deployment", "herd-actor"), tmp_path).actor.links == links


def test_draining_fits_within_the_notice_of_a_spot_node() -> None:
    grace = pod_of(find(render(), "Deployment", "herd-actor"))["terminationGracePeriodSeconds"]
    assert DRAIN_SECONDS < 25 < grace == 30


def test_spot_tolerations_are_added_on_request() -> None:
    objects = render_ci("spot-values.yaml")
    keys = {each["key"] for each in pod_of(find(objects, "Deployment", "herd-actor"))["tolerations"]}
    assert keys == {"cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority", "karpenter.sh/capacity-type"}
    assert "tolerations" not in pod_of(find(objects, "StatefulSet", "herd-learner"))


def test_the_horizontal_autoscaler_multiplies_the_number_of_pods() -> None:
    scaler = find(render(*with_values("actor.autoscaling.enabled=true")), "HorizontalPodAutoscaler", "herd-actor")["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "herd-actor"}
    (metric,) = scaler["metrics"]
    assert metric["external"]["metric"] == {"name": "herd_actors_wanted_ratio", "selector": {"matchLabels": {"release": "herd"}}}
    assert metric["external"]["target"] == {"type": "Value", "value": "1"}


def test_the_autoscaling_query_is_valid_and_uses_existing_metrics() -> None:
    objects = render_ci("autoscaled-values.yaml")
    assert ("HorizontalPodAutoscaler", "herd-actor") not in names(objects)
    scaled = find(objects, "ScaledObject", "herd-actor")["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (8, 500)
    query = scaled["triggers"][0]["metadata"]["query"]
    promql_parser.parse(query)
    described = (ROOT / "docs" / "metrics.md").read_text()
    assert scaled["triggers"][0]["metricType"] == "Value"
    for metric in ("herd_actor_blocked_seconds_total", "herd_learner_starved_seconds_total"):
        assert f"{metric}{{" in query
        assert f"`{metric}`" in described
    assert query.count('namespace="rl",release="herd"') == 2
    assert "950 / 1000" in query  # the learner may starve for a twentieth of its time


def test_learner_only_settings_do_not_restart_actors() -> None:
    def checksum(*words: str) -> str:
        template = find(render(*with_values(*words)), "Deployment", "herd-actor")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/experiment"])

    assert checksum("experiment.optimizer.learning_rate=0.001") == checksum() == checksum("experiment.learner.batch_size=64")
    assert checksum("experiment.env.frame_stack=1") != checksum()
    assert checksum("experiment=env: {frame_stack: 1}") == checksum("experiment.env.frame_stack=1")


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
        assert (
            own["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == "actor"
        )  # which the one network policy of all groups selects
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
