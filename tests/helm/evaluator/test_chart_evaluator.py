"""The evaluator exists once if the experiment asks for it, and its points are kept where the values say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helm.rendering import find, identity_of, names, pod_of, read_pod, render, with_values

pytestmark = pytest.mark.processes

WITH = ("experiment.evaluation.interval_seconds=600",)


def own(*words: str) -> set[str]:
    return {kind for kind, name in names(render(*with_values(*words))) if name == "herd-evaluator"}


def test_the_evaluator_exists_only_if_the_experiment_needs_it() -> None:
    assert own() == set()
    assert own("experiment.evaluation.final=true") == set()
    assert own(*WITH) == {"Deployment", "NetworkPolicy"}
    assert own(*WITH, "networkPolicy.enabled=false") == {"Deployment"}


def test_the_evaluator_has_one_replica_and_the_actors_services(tmp_path: Path) -> None:
    objects = render(*with_values(*WITH, "paramserverReplica.replicas=2", "experiment.loss.kind=dice"))
    evaluator = find(objects, "Deployment", "herd-evaluator")
    assert (evaluator["spec"]["replicas"], evaluator["spec"]["strategy"]) == (1, {"type": "Recreate"})
    settings, own = read_pod(objects, evaluator, tmp_path)
    actor = identity_of(objects, find(objects, "Deployment", "herd-actor"), tmp_path)
    assert own.addresses == {name: actor.addresses[name] for name in ("paramserver", "bandit")}
    assert own.address("paramserver") == "tcp://herd-paramserver-replica:7200"
    assert settings.evaluation.interval_seconds == 600


def test_points_are_stored_on_the_chosen_volume() -> None:
    def volume(*words: str) -> dict[str, object]:
        pod = pod_of(find(render(*with_values(*WITH, *words)), "Deployment", "herd-evaluator"))
        (found,) = [each for each in pod["volumes"] if each["name"] == "run"]
        return {key: value for key, value in found.items() if key != "name"}

    assert volume() == {"emptyDir": {"sizeLimit": "64Mi"}}
    assert volume("evaluator.persistence.existingClaim=mine") == {"persistentVolumeClaim": {"claimName": "mine"}}
    kept = ("evaluator.persistence.enabled=true",)
    assert volume(*kept) == {"persistentVolumeClaim": {"claimName": "herd-evaluator"}}
    assert own(*WITH, *kept) == {"Deployment", "NetworkPolicy", "PersistentVolumeClaim"}
    assert own(*WITH, *kept, "evaluator.persistence.existingClaim=mine") == {"Deployment", "NetworkPolicy"}
    claim = find(render(*with_values(*WITH, *kept)), "PersistentVolumeClaim", "herd-evaluator")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    words = (*WITH, *kept, "evaluator.persistence.retention.whenDeleted=Delete")
    assert "annotations" not in find(render(*with_values(*words)), "PersistentVolumeClaim", "herd-evaluator")["metadata"]


def test_the_evaluation_interval_restarts_only_the_evaluator() -> None:
    def checksum(kind: str, name: str, seconds: int) -> str:
        objects = render(*with_values(f"experiment.evaluation.interval_seconds={seconds}"))
        return str(find(objects, kind, name)["spec"]["template"]["metadata"]["annotations"]["checksum/experiment"])

    for kind, name in (("Deployment", "herd-actor"), ("StatefulSet", "herd-learner"), ("StatefulSet", "herd-paramserver")):
        assert checksum(kind, name, 60) == checksum(kind, name, 600)
    assert checksum("Deployment", "herd-evaluator", 60) != checksum("Deployment", "herd-evaluator", 600)
