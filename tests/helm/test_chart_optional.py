"""Components that exist only where the experiment needs them (bandit, replay, inference, evaluator, population), and their self-test."""

from __future__ import annotations

import pytest

from herd.telemetry import self_test
from tests.helm.rendering import (
    container_of,
    find,
    names,
    render,
    render_ci,
    with_values,
    workloads,
)

pytestmark = pytest.mark.processes

DICE = ("experiment.loss.kind=dice",)
SHARED = ("experiment.replay.kind=shared", "experiment.learner.queue_batches=16")
REMOTE = ("experiment.actor.inference=remote",)
EVALUATED = ("experiment.evaluation.interval_seconds=600",)
SWEPT = ("experiment.agents=2", 'experiment.sweep={"loss.entropy_cost": [0.1, 0.01]}')
POPULATION = (*SWEPT[:1], "experiment.population.strategy=pbt", "learner.persistence.existingClaim=runs")
SERVER = {"StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy"}


def kinds(component: str, *words: str) -> set[str]:
    """Kinds of the objects of a component."""
    return {kind for kind, name in names(render(*with_values(*words))) if name == f"herd-{component}"}


@pytest.mark.parametrize(
    ("component", "with_it", "without_it", "wanted"),
    [
        ("bandit", DICE, (*DICE, "experiment.loss.ablation=baseline"), SERVER),
        ("bandit", (*DICE, "experiment.loss.ablation=random"), (), SERVER),
        ("replay", SHARED, ("experiment.replay.kind=local", "experiment.learner.queue_batches=4"), SERVER),
        ("inference", REMOTE, ("experiment.inference.replicas=2",), SERVER - {"StatefulSet"} | {"Deployment"}),
        ("population", POPULATION, SWEPT, SERVER),
        ("evaluator", EVALUATED, ("experiment.evaluation.final=true",), {"Deployment", "NetworkPolicy"}),
    ],
)
def test_a_component_exists_only_if_the_experiment_needs_it(
    component: str, with_it: tuple[str, ...], without_it: tuple[str, ...], wanted: set[str]
) -> None:
    assert kinds(component) == kinds(component, *without_it) == set()
    assert kinds(component, *with_it) == wanted
    if "PodDisruptionBudget" in wanted:
        budget = find(render(*with_values(*with_it)), "PodDisruptionBudget", f"herd-{component}")["spec"]
        assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    off = ("networkPolicy.enabled=false", f"{component}.podDisruptionBudget.enabled=false")[: 1 + ("PodDisruptionBudget" in wanted)]
    assert kinds(component, *with_it, *off) == wanted - {"NetworkPolicy", "PodDisruptionBudget"}


@pytest.mark.parametrize(
    ("words", "change", "restarted"),
    [
        (SHARED, "experiment.optimizer.learning_rate=0.001", {"learner"}),
        (SHARED, "experiment.replay.capacity_agent_steps=5000", {"learner", "replay"}),
        (EVALUATED, "experiment.evaluation.interval_seconds=60", {"evaluator"}),
        (REMOTE, "experiment.inference.deadline_milliseconds=7", {"inference"}),
    ],
)
def test_a_changed_setting_restarts_only_its_readers(words: tuple[str, ...], change: str, restarted: set[str]) -> None:
    def checksums(*more: str) -> dict[str, str]:
        pods = [each for each in workloads(render(*with_values(*words, *more))) if each["kind"] != "Pod"]
        return {
            each["metadata"]["name"].removeprefix("herd-"): each["spec"]["template"]["metadata"]["annotations"]["checksum/experiment"]
            for each in pods
        }

    before, after = checksums(), checksums(change)
    assert {name for name in before if before[name] != after[name]} == restarted


def test_the_self_test_checks_every_service(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def watch(*arguments: object) -> bool:
        asked.extend(arguments)
        return True

    monkeypatch.setattr(self_test, "watch", watch)
    container = container_of(find(render_ci("multi-learner-values.yaml"), "Pod", "herd-test"))
    assert container["command"] == ["python", "-m", self_test.__name__]
    assert container["image"] == "registry.example.org/rl/herd-paramserver:0.1.0"  # this image is part of every release and has no torch
    assert self_test.main(container["args"]) == 0
    learners, others, seconds = asked
    assert learners == [f"http://herd-learner-{rank}.herd-learner:9400" for rank in range(8)]
    assert isinstance(others, list)
    assert sorted(others) == sorted(
        [
            *(f"http://herd-{service}:9400" for service in ("paramserver", "paramserver-replica", "bandit", "inference")),
            *(f"http://herd-replay-{index}.herd-replay:9400" for index in range(2)),
        ]
    )
    assert seconds == 240.0
