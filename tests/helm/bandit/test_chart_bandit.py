"""The bandit exists where the experiment has one, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helm.rendering import ROOT, find, names, pod_of, read_pod, render, with_values

pytestmark = pytest.mark.processes

DICE = ("experiment.loss.kind=dice",)


@pytest.mark.parametrize(
    ("words", "is_there"),
    [
        ((), False),
        (DICE, True),
        ((*DICE, "experiment.loss.ablation=random"), True),
        ((*DICE, "experiment.loss.ablation=baseline"), False),
    ],
)
def test_the_bandit_exists_only_if_the_experiment_needs_it(words: tuple[str, ...], is_there: bool, tmp_path: Path) -> None:
    objects = render(*with_values(*words))
    kinds = {kind for kind, name in names(objects) if name == "herd-bandit"}
    assert kinds == ({"StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy"} if is_there else set())
    settings, identity = read_pod(objects, find(objects, "Deployment", "herd-actor"), tmp_path)
    assert settings.loss.draws_temperatures == is_there
    assert identity.addresses.get("bandit") == (("tcp://herd-bandit:7300",) if is_there else None)


def test_the_bandit_exists_for_an_experiment_given_as_text() -> None:
    objects = render("--set-file", f"experiment={ROOT / 'experiments' / 'dice-catch.yaml'}")
    assert ("StatefulSet", "herd-bandit") in names(objects)


def test_the_bandit_has_one_replica_and_its_ports(tmp_path: Path) -> None:
    objects = render(*with_values(*DICE))
    bandit = find(objects, "StatefulSet", "herd-bandit")
    assert bandit["spec"]["replicas"] == 1
    assert read_pod(objects, bandit, tmp_path)[1].listen == ("*", 7300)


def test_persistence_and_disruption_budget_can_be_switched() -> None:
    plain = render(*with_values(*DICE))
    assert "volumeClaimTemplates" not in find(plain, "StatefulSet", "herd-bandit")["spec"]
    budget = find(plain, "PodDisruptionBudget", "herd-bandit")["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    other = render(*with_values(*DICE, "bandit.persistence.enabled=true", "bandit.podDisruptionBudget.enabled=false"))
    bandit = find(other, "StatefulSet", "herd-bandit")
    (claim,) = bandit["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "run"
    assert "run" not in {volume["name"] for volume in pod_of(bandit)["volumes"]}
    assert ("PodDisruptionBudget", "herd-bandit") not in names(other)
