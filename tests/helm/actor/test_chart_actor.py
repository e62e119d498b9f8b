"""Actors: a Deployment of interchangeable pods, any of which may end at any time."""

from __future__ import annotations

import textwrap
from pathlib import Path

import promql_parser
import pytest
import yaml
from herd_actor.actor import DRAIN_SECONDS

from tests.helm.rendering import (
    CHART,
    ROOT,
    container_of,
    find,
    names,
    of_component,
    pod_of,
    read_pod,
    render,
    render_ci,
    settings_of,
    with_values,
)

pytestmark = pytest.mark.processes

HERE = Path(__file__).parent


def test_the_documented_autoscaling_query_matches_the_chart() -> None:
    objects = render(*with_values("actor.autoscaling.enabled=true", "actor.autoscaling.kind=keda"))
    query = find(objects, "ScaledObject", "herd-actor")["spec"]["triggers"][0]["metadata"]["query"].strip()
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    assert textwrap.indent(query, "  ") in text
    entry = text.partition("  ```yaml\n  externalRules:")[2].partition("  ```\n")[0]
    (rule,) = yaml.safe_load(textwrap.dedent("  externalRules:" + entry))["externalRules"]
    assert rule["metricsQuery"].strip().replace("<<.LabelMatchers>>", 'namespace="rl",release="herd"') == query
    assert rule["name"]["as"] == yaml.safe_load((CHART / "values.yaml").read_text())["actor"]["autoscaling"]["metricName"]


def test_actors_have_neither_service_nor_disruption_budget() -> None:
    kinds = {each["kind"] for each in of_component(render_ci("multi-learner-values.yaml"), "actor")}
    assert kinds == {"Deployment", "NetworkPolicy"}


def test_actors_lease_an_index_and_know_every_shard(tmp_path: Path) -> None:
    objects = render_ci("multi-learner-values.yaml")
    settings, identity = read_pod(objects, find(objects, "Deployment", "herd-actor"), tmp_path)
    assert (identity.agent, identity.index, identity.metrics) == (None, None, ("*", 9400))
    assert identity.addresses["learner"] == tuple(f"tcp://herd-learner-{rank}.herd-learner:7100" for rank in range(8))
    assert identity.address("paramserver") == "tcp://herd-paramserver-replica:7200"
    assert identity.address("bandit") == "tcp://herd-bandit:7300"
    assert not settings.actor.pin_to_cpu


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


def test_replicas_are_omitted_if_autoscaled_or_null() -> None:
    def spec(*words: str) -> dict[str, object]:
        deployment = find(render(*with_values(*words)), "Deployment", "herd-actor")
        return dict(deployment["spec"])

    assert spec("actor.replicas=4000")["replicas"] == 4000
    assert "replicas" not in spec("actor.replicas=null")
    assert "replicas" not in spec("actor.autoscaling.enabled=true")
    assert "replicas" not in spec("actor.autoscaling.enabled=true", "actor.autoscaling.kind=keda")


def test_rollouts_replace_a_share_of_the_pods() -> None:
    strategy = find(render_ci("actors-4000-values.yaml"), "Deployment", "herd-actor")["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}}


def test_draining_fits_within_the_notice_of_a_spot_node() -> None:
    grace = pod_of(find(render(), "Deployment", "herd-actor"))["terminationGracePeriodSeconds"]
    assert DRAIN_SECONDS < 25 < grace == 30


def test_spot_tolerations_are_added_on_request() -> None:
    assert "tolerations" not in pod_of(find(render(), "Deployment", "herd-actor"))
    objects = render_ci("spot-values.yaml")
    keys = {each["key"] for each in pod_of(find(objects, "Deployment", "herd-actor"))["tolerations"]}
    assert keys == {"cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority", "karpenter.sh/capacity-type"}
    assert "tolerations" not in pod_of(find(objects, "StatefulSet", "herd-learner"))


def test_spreading_over_nodes_is_a_preference() -> None:
    (spread,) = pod_of(find(render(), "Deployment", "herd-actor"))["topologySpreadConstraints"]
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        ((), set()),
        (("actor.autoscaling.enabled=true",), {"HorizontalPodAutoscaler"}),
        (("actor.autoscaling.enabled=true", "actor.autoscaling.kind=keda"), {"ScaledObject"}),
    ],
)
def test_autoscalers_are_created_on_request(words: tuple[str, ...], kinds: set[str]) -> None:
    found = {kind for kind, _ in names(render(*with_values(*words)))}
    assert found & {"HorizontalPodAutoscaler", "ScaledObject"} == kinds


def test_the_horizontal_autoscaler_multiplies_the_number_of_pods() -> None:
    scaler = find(render(*with_values("actor.autoscaling.enabled=true")), "HorizontalPodAutoscaler", "herd-actor")["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "herd-actor"}
    (metric,) = scaler["metrics"]
    assert metric["external"]["metric"] == {"name": "herd_actors_wanted_ratio", "selector": {"matchLabels": {"release": "herd"}}}
    assert metric["external"]["target"] == {"type": "Value", "value": "1"}


def test_the_autoscaling_query_is_valid_and_uses_existing_metrics() -> None:
    scaled = find(render_ci("autoscaled-values.yaml"), "ScaledObject", "herd-actor")["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (8, 500)
    query = scaled["triggers"][0]["metadata"]["query"]
    promql_parser.parse(query)
    described = (HERE.parents[2] / "docs" / "metrics.md").read_text()
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


def test_the_startup_probe_allows_waiting_for_an_index() -> None:
    startup = container_of(find(render(), "Deployment", "herd-actor"))["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 600
