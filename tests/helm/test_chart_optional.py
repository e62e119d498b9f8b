"""Components that a run may have: bandit, replay, inference service and evaluator exist where the experiment needs them, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helm.rendering import (
    ROOT,
    Object,
    container_of,
    find,
    identity_of,
    names,
    pod_of,
    read_pod,
    render,
    settings_of,
    with_values,
    workloads,
)

pytestmark = pytest.mark.processes

DICE = ("experiment.loss.kind=dice",)
SHARED = ("experiment.replay.kind=shared", "experiment.learner.queue_batches=16")
REMOTE = ("experiment.actor.inference=remote",)
EVALUATED = ("experiment.evaluation.interval_seconds=600",)
SERVER = {"StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy"}


def kinds(component: str, *words: str) -> set[str]:
    """Kinds of the objects of a component."""
    return {kind for kind, name in names(render(*with_values(*words))) if name == f"herd-{component}"}


def run_volume(workload: Object) -> Object | None:
    found = [each for each in pod_of(workload)["volumes"] if each["name"] == "run"]
    return {key: value for key, value in found[0].items() if key != "name"} if found else None


@pytest.mark.parametrize(
    ("component", "with_it", "without_it", "wanted"),
    [
        ("bandit", DICE, (*DICE, "experiment.loss.ablation=baseline"), SERVER),
        ("bandit", (*DICE, "experiment.loss.ablation=random"), (), SERVER),
        ("replay", SHARED, ("experiment.replay.kind=local", "experiment.learner.queue_batches=4"), SERVER),
        ("inference", REMOTE, ("experiment.inference.replicas=2",), SERVER - {"StatefulSet"} | {"Deployment"}),
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


def test_an_experiment_given_as_text_has_its_components() -> None:
    objects = render("--set-file", f"experiment={ROOT / 'experiments' / 'dice-catch.yaml'}")
    assert ("StatefulSet", "herd-bandit") in names(objects)


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


def test_the_bandit_has_one_replica_that_actors_find(tmp_path: Path) -> None:
    objects = render(*with_values(*DICE))
    bandit, actor = find(objects, "StatefulSet", "herd-bandit"), find(objects, "Deployment", "herd-actor")
    assert bandit["spec"]["replicas"] == 1
    assert identity_of(objects, bandit, tmp_path).listen == ("*", 7300)
    settings, identity = read_pod(objects, actor, tmp_path)
    assert settings.loss.draws_temperatures
    assert identity.address("bandit") == "tcp://herd-bandit:7300"


@pytest.mark.parametrize(("component", "words"), [("bandit", DICE), ("replay", SHARED)])
def test_a_state_may_be_kept_on_a_volume(component: str, words: tuple[str, ...]) -> None:
    plain = find(render(*with_values(*words)), "StatefulSet", f"herd-{component}")
    assert "volumeClaimTemplates" not in plain["spec"]
    assert run_volume(plain) is not None
    kept = find(render(*with_values(*words, f"{component}.persistence.enabled=true")), "StatefulSet", f"herd-{component}")
    (claim,) = kept["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "run"
    assert run_volume(kept) is None


@pytest.mark.parametrize(
    "words", [("experiment.replay_service.replicas=3",), ("experiment.replay_service.replicas=2", "replay.replicas=3")]
)
def test_every_replica_of_replay_has_its_own_name_and_index(words: tuple[str, ...], tmp_path: Path) -> None:
    objects = render(*with_values(*SHARED, *words))
    replay = find(objects, "StatefulSet", "herd-replay")
    assert replay["spec"]["replicas"] == 3
    settings, identity = read_pod(objects, replay, tmp_path)
    assert (settings.replay_service.replicas, identity.index, identity.listen) == (3, 0, ("*", 7400))
    (index,) = [each for each in container_of(replay)["env"] if each["name"] == "HERD_INDEX"]
    assert index["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['apps.kubernetes.io/pod-index']"
    assert find(objects, "Service", "herd-replay")["spec"]["clusterIP"] == "None"
    settings, learner = read_pod(objects, find(objects, "StatefulSet", "herd-learner"), tmp_path)
    assert settings.replay.kind == "shared"
    assert learner.addresses["replay"] == tuple(f"tcp://herd-replay-{number}.herd-replay:7400" for number in range(3))


def test_actors_use_inference_with_the_same_parameter_server(tmp_path: Path) -> None:
    objects = render(*with_values(*REMOTE, "paramserverReplica.replicas=2", "experiment.inference.replicas=3"))
    deployment = find(objects, "Deployment", "herd-inference")
    assert deployment["spec"]["replicas"] == 3
    inference = identity_of(objects, deployment, tmp_path)
    actor = identity_of(objects, find(objects, "Deployment", "herd-actor"), tmp_path)
    assert actor.address("inference") == f"tcp://herd-inference:{inference.listen.port}"
    assert inference.address("paramserver") == actor.address("paramserver") == "tcp://herd-paramserver-replica:7200"
    assert "--ready=http://herd-inference:9400" in container_of(find(objects, "Pod", "herd-test"))["args"]
    assert find(render(*with_values(*REMOTE, "inference.replicas=5")), "Deployment", "herd-inference")["spec"]["replicas"] == 5


def test_a_gpu_for_inference_is_required_by_the_settings(tmp_path: Path) -> None:
    objects = render(*with_values(*REMOTE, "inference.gpu.enabled=true"))
    deployment = find(objects, "Deployment", "herd-inference")
    assert container_of(deployment)["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert pod_of(deployment)["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert settings_of(objects, deployment, tmp_path).inference.device == "cuda"


def test_the_evaluator_has_one_replica_and_the_actors_services(tmp_path: Path) -> None:
    objects = render(*with_values(*EVALUATED, *DICE, "paramserverReplica.replicas=2"))
    evaluator = find(objects, "Deployment", "herd-evaluator")
    assert (evaluator["spec"]["replicas"], evaluator["spec"]["strategy"]) == (1, {"type": "Recreate"})
    settings, own = read_pod(objects, evaluator, tmp_path)
    actor = identity_of(objects, find(objects, "Deployment", "herd-actor"), tmp_path)
    assert own.addresses == {name: actor.addresses[name] for name in ("paramserver", "bandit")}
    assert own.address("paramserver") == "tcp://herd-paramserver-replica:7200"
    assert settings.evaluation.interval_seconds == 600


def test_points_of_the_evaluator_are_stored_on_the_chosen_volume() -> None:
    kept, existing = "evaluator.persistence.enabled=true", "evaluator.persistence.existingClaim=mine"
    for words, volume, claims in (
        ((), {"emptyDir": {"sizeLimit": "64Mi"}}, 0),
        ((existing,), {"persistentVolumeClaim": {"claimName": "mine"}}, 0),
        ((kept,), {"persistentVolumeClaim": {"claimName": "herd-evaluator"}}, 1),
        ((kept, existing), {"persistentVolumeClaim": {"claimName": "mine"}}, 0),
    ):
        objects = render(*with_values(*EVALUATED, *words))
        assert run_volume(find(objects, "Deployment", "herd-evaluator")) == volume
        assert [kind for kind, _ in names(objects)].count("PersistentVolumeClaim") == claims
    for words, wanted in (
        ((kept,), {"helm.sh/resource-policy": "keep"}),
        ((kept, "evaluator.persistence.retention.whenDeleted=Delete"), None),
    ):
        claim = find(render(*with_values(*EVALUATED, *words)), "PersistentVolumeClaim", "herd-evaluator")
        assert claim["metadata"].get("annotations") == wanted
