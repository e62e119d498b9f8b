"""Central inference exists if the experiment asks for it, and actors find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helm.rendering import container_of, find, identity_of, names, pod_of, render, settings_of, with_values

pytestmark = pytest.mark.processes

WITH = ("experiment.actor.inference=remote",)


def own(*words: str) -> set[str]:
    return {kind for kind, name in names(render(*with_values(*words))) if name == "herd-inference"}


def test_inference_exists_only_if_the_experiment_needs_it() -> None:
    assert own() == set()
    assert own("experiment.inference.replicas=2") == set()
    assert own(*WITH) == {"Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"}
    assert own(*WITH, "networkPolicy.enabled=false", "inference.podDisruptionBudget.enabled=false") == {"Deployment", "Service"}


def test_actors_use_inference_with_the_same_parameter_server(tmp_path: Path) -> None:
    objects = render(*with_values(*WITH, "paramserverReplica.replicas=2", "experiment.inference.replicas=3"))
    deployment = find(objects, "Deployment", "herd-inference")
    assert deployment["spec"]["replicas"] == 3
    inference = identity_of(objects, deployment, tmp_path)
    actor = identity_of(objects, find(objects, "Deployment", "herd-actor"), tmp_path)
    assert actor.address("inference") == f"tcp://herd-inference:{inference.listen.port}"
    assert inference.address("paramserver") == actor.address("paramserver") == "tcp://herd-paramserver-replica:7200"
    assert "--ready=http://herd-inference:9400" in container_of(find(objects, "Pod", "herd-test"))["args"]
    assert find(render(*with_values(*WITH, "inference.replicas=5")), "Deployment", "herd-inference")["spec"]["replicas"] == 5


def test_a_requested_gpu_is_required_by_the_settings(tmp_path: Path) -> None:
    objects = render(*with_values(*WITH, "inference.gpu.enabled=true"))
    deployment = find(objects, "Deployment", "herd-inference")
    assert container_of(deployment)["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert pod_of(deployment)["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert settings_of(objects, deployment, tmp_path).inference.device == "cuda"


def test_inference_settings_restart_only_the_inference_pods() -> None:
    def checksum(kind: str, name: str, milliseconds: int) -> str:
        objects = render(*with_values(*WITH, f"experiment.inference.deadline_milliseconds={milliseconds}"))
        return str(find(objects, kind, name)["spec"]["template"]["metadata"]["annotations"]["checksum/experiment"])

    for kind, name in (("Deployment", "herd-actor"), ("StatefulSet", "herd-learner"), ("StatefulSet", "herd-paramserver")):
        assert checksum(kind, name, 1) == checksum(kind, name, 3)
    assert checksum("Deployment", "herd-inference", 1) != checksum("Deployment", "herd-inference", 3)
