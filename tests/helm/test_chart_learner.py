"""Learners are ranked pods that meet by name, and resume from the checkpoint at every start."""

from __future__ import annotations

from pathlib import Path

import pytest
from herd_learner.group import pod
from herd_learner.group.rendezvous import Place, place_of

from tests.containers.pods import plan_pods
from tests.helm.rendering import (
    Object,
    RenderError,
    container_of,
    find,
    pod_of,
    read_pod,
    render,
    render_ci,
    settings_of,
    with_values,
)

pytestmark = pytest.mark.processes


def learner(*words: str) -> Object:
    return find(render(*with_values(*words)), "StatefulSet", "herd-learner")


def test_shards_get_their_rank_and_rendezvous_address() -> None:
    objects = render_ci("multi-learner-values.yaml")
    shards = find(objects, "StatefulSet", "herd-learner")
    assert shards["spec"]["replicas"] == 8
    assert shards["spec"]["podManagementPolicy"] == "Parallel"
    assert container_of(shards)["command"] == ["python", "-m", pod.__name__]
    env = {each["name"]: each for each in container_of(shards)["env"]}
    assert env["GROUP_RANK"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}
    told = {name: each["value"] for name, each in env.items() if "value" in each} | {"RANK": "3"}
    assert (told["LOCAL_WORLD_SIZE"], place_of(8, told)) == ("1", Place(3, 8, "herd-learner-0.herd-learner", 29500))
    service = find(objects, "Service", "herd-learner")["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True  # learners must find each other before they are ready
    assert {port["name"]: port["port"] for port in service["ports"]} == {"unrolls": 7100, "rendezvous": 29500, "metrics": 9400}


def test_shards_of_one_pod_have_a_gpu_and_ports_each() -> None:
    words = ("learner.shards=4", "learner.shardsPerPod=2", "learner.gpu.enabled=true", "monitoring.podMonitor.enabled=true")
    objects = render(*with_values(*words))
    shards = find(objects, "StatefulSet", "herd-learner")
    container = container_of(shards)
    assert (shards["spec"]["replicas"], container["resources"]["limits"]["nvidia.com/gpu"]) == (2, 2)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"unrolls": 7100, "unrolls-1": 7101, "rendezvous": 29500, "metrics": 9400, "metrics-1": 9401}
    hosts = [(f"herd-learner-{number}.herd-learner", local) for number in range(2) for local in range(2)]
    actor = container_of(find(objects, "Deployment", "herd-actor"))["args"]
    assert "--learner=" + ",".join(f"tcp://{host}:{7100 + local}" for host, local in hosts) in actor
    test = container_of(find(objects, "Pod", "herd-test"))["args"]
    assert [word for word in test if "--learner" in word] == [f"--learner=http://{host}:{9400 + local}" for host, local in hosts]
    monitor = find(objects, "PodMonitor", "herd")["spec"]["podMetricsEndpoints"]
    assert [each["port"] for each in monitor] == ["metrics", "metrics-1"]
    (unrolls, _, metrics) = find(objects, "NetworkPolicy", "herd-learner")["spec"]["ingress"]
    assert unrolls["ports"] == [{"port": 7100, "endPort": 7101, "protocol": "TCP"}]
    assert metrics["ports"] == [{"port": 9400, "endPort": 9401, "protocol": "TCP"}]
    with pytest.raises(RenderError, match="3 shards cannot be divided into pods of 2"):
        render(*with_values("learner.shards=3", "learner.shardsPerPod=2"))


def test_shards_come_from_the_experiment_unless_overridden(tmp_path: Path) -> None:
    for words, shards in ((("experiment.learner.shards=3",), 3), (("experiment.learner.shards=3", "learner.shards=2"), 2)):
        objects = render(*with_values(*words))
        own = find(objects, "StatefulSet", "herd-learner")
        assert own["spec"]["replicas"] == settings_of(objects, own, tmp_path).learner.shards == shards


def test_shards_of_different_revisions_do_not_form_a_group() -> None:
    """The group is named after the template's revision, so any change that makes the controller replace pods makes a new group."""
    env = {each["name"]: each for each in container_of(learner("learner.shards=2"))["env"]}
    assert env["TORCHELASTIC_RUN_ID"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.labels['controller-revision-hash']"}}

    def template(*words: str) -> Object:
        return dict(learner("learner.shards=2", *words)["spec"]["template"])

    assert template("actor.replicas=9") == template()
    for change in ("learner.shards=3", "experiment.optimizer.learning_rate=0.001", "image.tag=other", 'learner.extraArgs=["--seed=7"]'):
        assert template(change) != template(), change


def test_pods_without_a_controller_share_a_group_per_version() -> None:
    """This is for environments in which no controller labels pods, as in tests/containers."""

    def groups(*words: str) -> set[str]:
        plans = [plan for plan in plan_pods(render(*with_values("learner.shards=2", *words))) if plan.component == "learner"]
        env = [{each["name"]: each for each in container_of(plan.manifests[-1])["env"]} for plan in plans]
        assert [each["GROUP_RANK"]["value"] for each in env] == ["0", "1"]
        return {each["TORCHELASTIC_RUN_ID"]["value"] for each in env}

    assert len(groups()) == 1
    assert groups("image.tag=other") != groups()


def test_every_start_resumes_and_waits_for_a_signal_at_the_end(tmp_path: Path) -> None:
    objects = render(*with_values("experiment=name: mine\nlearner: {threads: 1}\nstop: {env_frames: 1000}"))
    settings, identity = read_pod(objects, find(objects, "StatefulSet", "herd-learner"), tmp_path)
    assert settings.resume
    assert settings.stop.wait_for_signal
    assert settings.stop.env_frames == 1000
    assert settings.directory == Path("/var/lib/herd/runs/mine")
    assert (identity.listen, settings.learner.threads) == (("*", 7100), None)
    assert identity.address("paramserver") == "tcp://herd-paramserver:7200"


@pytest.mark.parametrize(
    ("resource", "tolerated"),
    [
        ("nvidia.com/gpu", ["nvidia.com/gpu"]),
        ("nvidia.com/mig-1g.10gb", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"]),
        ("nvidia.com/gpu.shared", ["nvidia.com/gpu", "nvidia.com/gpu.shared"]),
        ("amd.com/gpu", ["amd.com/gpu"]),
    ],
)
def test_the_taint_of_gpu_nodes_is_tolerated_whatever_the_resource(resource: str, tolerated: list[str]) -> None:
    gpu = learner("learner.gpu.enabled=true", f"learner.gpu.resourceName={resource}")
    assert "--learner.device=cuda" in container_of(gpu)["args"]
    assert container_of(gpu)["resources"]["limits"][resource] == 1
    assert [each["key"] for each in pod_of(gpu)["tolerations"]] == tolerated


def test_volume_claims_do_not_change_with_chart_or_labels() -> None:
    """Kubernetes rejects any change to claims, and the whole upgrade with it."""
    words = ("learner.persistence.enabled=true",)
    plain, labelled = learner(*words), learner(*words, 'commonLabels={"team": "rl"}', "image.tag=other")
    assert plain["spec"]["volumeClaimTemplates"] == labelled["spec"]["volumeClaimTemplates"]
    assert "helm.sh/chart" not in str(plain["spec"]["volumeClaimTemplates"])
