"""Replay exists if the experiment shares it; each of its replicas is a pod with its own number."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helm.rendering import container_of, find, identity_of, names, pod_of, read_pod, render, with_values

pytestmark = pytest.mark.processes

SHARED = ("experiment.replay.kind=shared", "experiment.learner.queue_batches=16")


@pytest.mark.parametrize(
    ("words", "is_there"), [((), False), (SHARED, True), (("experiment.replay.kind=uniform", "experiment.learner.queue_batches=4"), False)]
)
def test_replay_exists_only_if_the_experiment_shares_it(words: tuple[str, ...], is_there: bool, tmp_path: Path) -> None:
    objects = render(*with_values(*words))
    kinds = {kind for kind, name in names(objects) if name == "herd-replay"}
    assert kinds == ({"StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy"} if is_there else set())
    settings, identity = read_pod(objects, find(objects, "StatefulSet", "herd-learner"), tmp_path)
    assert (settings.replay.kind == "shared") == is_there
    assert identity.addresses.get("replay") == (("tcp://herd-replay-0.herd-replay:7400",) if is_there else None)


@pytest.mark.parametrize(
    "words", [("experiment.replay_service.replicas=3",), ("experiment.replay_service.replicas=2", "replay.replicas=3")]
)
def test_every_replica_has_its_own_name_and_index(words: tuple[str, ...], tmp_path: Path) -> None:
    objects = render(*with_values(*SHARED, *words))
    replay = find(objects, "StatefulSet", "herd-replay")
    assert replay["spec"]["replicas"] == 3
    settings, identity = read_pod(objects, replay, tmp_path)
    assert (settings.replay_service.replicas, identity.index, identity.listen) == (3, 0, ("*", 7400))
    (index,) = [each for each in container_of(replay)["env"] if each["name"] == "HERD_INDEX"]
    assert index["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['apps.kubernetes.io/pod-index']"
    assert find(objects, "Service", "herd-replay")["spec"]["clusterIP"] == "None"
    learner = identity_of(objects, find(objects, "StatefulSet", "herd-learner"), tmp_path)
    assert learner.addresses["replay"] == tuple(f"tcp://herd-replay-{number}.herd-replay:7400" for number in range(3))


def test_other_settings_do_not_restart_replay() -> None:
    def checksums(*words: str) -> dict[str, str]:
        objects = render(*with_values(*SHARED, *words))
        return {
            component: find(objects, kind, f"herd-{component}")["spec"]["template"]["metadata"]["annotations"]["checksum/experiment"]
            for component, kind in (("replay", "StatefulSet"), ("actor", "Deployment"), ("learner", "StatefulSet"))
        }

    def changed(*words: str) -> set[str]:
        before, after = checksums(), checksums(*words)
        return {component for component in before if before[component] != after[component]}

    assert changed("experiment.optimizer.learning_rate=0.001") == {"learner"}
    assert changed("experiment.replay.capacity_agent_steps=5000") == {"learner", "replay"}


def test_persistence_and_disruption_budget_can_be_switched() -> None:
    plain = render(*with_values(*SHARED))
    assert "volumeClaimTemplates" not in find(plain, "StatefulSet", "herd-replay")["spec"]
    assert find(plain, "PodDisruptionBudget", "herd-replay")["spec"]["maxUnavailable"] == 1
    other = render(*with_values(*SHARED, "replay.persistence.enabled=true", "replay.podDisruptionBudget.enabled=false"))
    replay = find(other, "StatefulSet", "herd-replay")
    (claim,) = replay["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "run"
    assert "run" not in {volume["name"] for volume in pod_of(replay)["volumes"]}
    assert ("PodDisruptionBudget", "herd-replay") not in names(other)
