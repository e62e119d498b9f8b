"""The parameter server: one root, and replicas that actors ask instead of the root."""

from __future__ import annotations

from pathlib import Path

import pytest

from herd.service.identity import Endpoint, Identity
from tests.helm.rendering import find, identity_of, names, render, render_ci, with_values

pytestmark = pytest.mark.processes

REPLICA = "herd-paramserver-replica"


def test_the_root_has_one_replica_and_no_parent(tmp_path: Path) -> None:
    objects = render()
    root = find(objects, "StatefulSet", "herd-paramserver")
    assert root["spec"]["replicas"] == 1
    assert identity_of(objects, root, tmp_path) == Identity(listen=Endpoint("*", 7200), metrics=Endpoint("*", 9400))
    assert find(objects, "Service", "herd-paramserver")["spec"]["clusterIP"] == "None"


def test_replicas_follow_the_root_and_serve_actors(tmp_path: Path) -> None:
    objects = render(*with_values("paramserverReplica.replicas=3"))
    replicas = find(objects, "StatefulSet", REPLICA)
    assert replicas["spec"]["replicas"] == 3
    assert identity_of(objects, replicas, tmp_path).address("paramserver") == "tcp://herd-paramserver:7200"
    service = find(objects, "Service", REPLICA)["spec"]
    assert "clusterIP" not in service  # a cluster IP, which balances over the replicas that have weights
    assert "publishNotReadyAddresses" not in service
    actor, learner = find(objects, "Deployment", "herd-actor"), find(objects, "StatefulSet", "herd-learner")
    assert identity_of(objects, actor, tmp_path).address("paramserver") == f"tcp://{REPLICA}:7200"
    assert identity_of(objects, learner, tmp_path).address("paramserver") == "tcp://herd-paramserver:7200"


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ((), 0),
        (("experiment.paramserver.replicas=2",), 2),
        (("experiment.paramserver.replicas=2", "paramserverReplica.replicas=0"), 0),
    ],
)
def test_replicas_come_from_the_experiment_unless_overridden(words: tuple[str, ...], number: int) -> None:
    objects = render(*with_values(*words))
    kinds = {kind for kind, name in names(objects) if name == REPLICA}
    assert kinds == ({"StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy"} if number else set())
    if number:
        assert find(objects, "StatefulSet", REPLICA)["spec"]["replicas"] == number


def test_disruption_budgets_can_be_disabled() -> None:
    on = render(*with_values("paramserverReplica.replicas=3"))
    for name in ("herd-paramserver", REPLICA):
        budget = find(on, "PodDisruptionBudget", name)["spec"]
        assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
        assert budget["selector"] == find(on, "StatefulSet", name)["spec"]["selector"]
    off = ("paramserver.podDisruptionBudget.enabled=false", "paramserverReplica.podDisruptionBudget.enabled=false")
    assert "PodDisruptionBudget" not in {kind for kind, _ in names(render(*with_values("paramserverReplica.replicas=3", *off)))}


def test_traffic_distribution_can_be_set() -> None:
    assert "trafficDistribution" not in find(render(*with_values("paramserverReplica.replicas=1")), "Service", REPLICA)["spec"]
    assert find(render_ci("actors-4000-values.yaml"), "Service", REPLICA)["spec"]["trafficDistribution"] == "PreferSameZone"
