"""Every file of ci/ under both Helms is valid for every Kubernetes from 1.32 on, named and labelled as agreed, and hardened."""

from __future__ import annotations

import json
import os
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from helm.tools.fetch_tools import ENGINES
from helm.tools.values_schema import read_values
from herd.components.optimizers.rmsprop import RMSPropSettings
from herd.config.loading import load_settings
from herd.launch.placement import Place, placement
from herd.topology import COMPONENT_NAMES, COMPONENTS, METRICS_PORT
from tests.helm.rendering import (
    CHART,
    CI_FILES,
    NEWEST,
    ROOT,
    Object,
    RenderError,
    container_of,
    find,
    helm,
    names,
    pod_of,
    read_pod,
    render,
    render_all,
    render_ci,
    settings_of,
    with_values,
    workloads,
)
from tests.own_hosts import on_own_hosts

pytestmark = pytest.mark.processes

KUBERNETES = ("1.32", "1.37")
"""The oldest and the newest version: between them a field is added or removed at most once."""
IN_VALUES = {name: re.sub("-(.)", lambda letter: letter[1].upper(), name) for name in COMPONENT_NAMES}
"""Sections of values.yaml."""
CUSTOM = {"PodMonitor", "PrometheusRule", "ScaledObject"}
EXPERIMENTS = sorted(path.name for path in (ROOT / "experiments").glob("*.yaml"))
EVERY_SWITCH = with_values(
    "security.curve.existingSecret=herd-keys",
    "service.ipFamilyPolicy=PreferDualStack",
    'service.ipFamilies=["IPv6", "IPv4"]',
    "actor.autoscaling.enabled=true",
    "actor.spot.enabled=true",
    "learner.gpu.enabled=true",
    "inference.gpu.enabled=true",
    "inference.podDisruptionBudget.enabled=true",
    "learner.podDisruptionBudget.enabled=true",
    "bandit.persistence.enabled=true",
    "replay.persistence.enabled=true",
    "paramserverReplica.trafficDistribution=PreferSameZone",
)


def test_the_default_release_matches_its_snapshot() -> None:
    """The default release equals the approved snapshot; ``UPDATE_SNAPSHOTS=1`` approves a new one."""
    objects = render_ci("default-values.yaml")
    assert [name for kind, name in names(objects) if kind == "ConfigMap"] == ["herd-experiment"]
    objects = [each for each in objects if each["kind"] != "ConfigMap"]  # the experiment is tested below
    objects.sort(key=lambda each: (each["metadata"]["name"], each["kind"]))
    text = yaml.safe_dump_all(objects, sort_keys=True, width=120, default_flow_style=None)
    file = Path(__file__).with_name("default.snapshot.yaml")
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.write_text(text)
    assert text == file.read_text(), f"{file.name}: look at the difference, and approve it with UPDATE_SNAPSHOTS=1"


@pytest.mark.parametrize("engine", ENGINES)
def test_services_have_the_ip_families_of_the_values(engine: str) -> None:
    def families(*words: str) -> list[tuple[object, object]]:
        services = [each["spec"] for each in render_ci("multi-learner-values.yaml", *words, engine=engine) if each["kind"] == "Service"]
        return [(spec.get("ipFamilyPolicy"), spec.get("ipFamilies")) for spec in services]

    plain = families()
    assert set(plain) == {(None, None)}
    chosen = families(*with_values("service.ipFamilyPolicy=PreferDualStack", 'service.ipFamilies=["IPv6", "IPv4"]'))
    assert chosen == [("PreferDualStack", ["IPv6", "IPv4"])] * len(plain)


@pytest.mark.parametrize("name", CI_FILES)
def test_both_helm_versions_render_the_same_objects(name: str) -> None:
    first, *others = (sorted(map(str, render_ci(name, engine=engine))) for engine in ENGINES)
    assert first
    assert all(other == first for other in others)


def test_every_object_is_valid_for_every_kubernetes() -> None:
    """Validation is strict: unknown fields and wrong types are errors."""
    unique: dict[str, Object] = {}
    for objects in (*map(render_ci, CI_FILES), render_ci("multi-learner-values.yaml", *EVERY_SWITCH)):
        unique |= {str(each): each for each in objects if each["kind"] not in CUSTOM}
    assert {each["kind"] for each in unique.values()} >= {"Deployment", "StatefulSet", "HorizontalPodAutoscaler", "Pod"}
    for each in unique.values():
        for version in KUBERNETES:
            kubernetes_validate.validate(each, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**unique.popitem()[1], "prots": []}, KUBERNETES[0], strict=True)


@pytest.mark.parametrize("name", CI_FILES)
def test_pods_are_restricted(name: str) -> None:
    """Pods meet Pod Security `restricted`, and more: no token, a read-only root, limits, no service variables."""
    pods = workloads(render_ci(name))
    assert {each["kind"] for each in pods} == {"Deployment", "StatefulSet", "Pod"}
    for workload in pods:
        spec, container = pod_of(workload), container_of(workload)
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        pod, own = spec["securityContext"], container["securityContext"]
        assert (pod["runAsNonRoot"], pod["runAsUser"], pod["seccompProfile"]) == (True, 10001, {"type": "RuntimeDefault"})
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec) == set()
        for volume in spec.get("volumes", []):
            assert set(volume) - {"name"} <= {"configMap", "emptyDir", "secret", "persistentVolumeClaim"}
            assert "sizeLimit" in volume.get("emptyDir", {"sizeLimit": ""})
        resources = container["resources"]
        assert {"cpu", "memory"} <= set(resources["requests"]) & set(resources["limits"])


def test_a_run_name_with_yaml_syntax_stays_a_string() -> None:
    for workload in workloads(render(*with_values("experiment=name: 'a: b'"))):
        if workload["kind"] != "Pod":
            assert "--run_dir=/var/lib/herd/runs/a: b" in container_of(workload)["args"]


@pytest.mark.parametrize("name", CI_FILES)
def test_mounts_match_volumes(name: str) -> None:
    for workload in workloads(render_ci(name)):
        claims = [claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])]
        volumes = [volume["name"] for volume in pod_of(workload).get("volumes", [])] + claims
        mounts = container_of(workload).get("volumeMounts", [])
        assert sorted(volumes) == sorted(mount["name"] for mount in mounts)
        assert len({mount["mountPath"] for mount in mounts}) == len(mounts)


@pytest.mark.parametrize("name", CI_FILES)
def test_names_labels_and_namespaces_are_consistent(name: str) -> None:
    objects = render_ci(name)
    assert len(names(objects)) == len(objects)
    for each in objects:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == labels["app.kubernetes.io/instance"] == labels["app.kubernetes.io/part-of"] == "herd"
        assert each["metadata"]["namespace"] == "rl"
    for workload in workloads(objects):
        if workload["kind"] == "Pod":
            continue
        selector = workload["spec"]["selector"]["matchLabels"]
        # Only labels that never change: a selector is immutable, but the chart's version is not.
        assert set(selector) - {"herd/agent"} == {f"app.kubernetes.io/{key}" for key in ("name", "instance", "component")}
        assert selector.items() <= workload["spec"]["template"]["metadata"]["labels"].items()
        assert "helm.sh/chart" not in workload["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("name", CI_FILES)
def test_services_select_existing_pods_and_ports(name: str) -> None:
    objects = render_ci(name)
    for service in (each for each in objects if each["kind"] == "Service"):
        pods = [
            each
            for each in workloads(objects)
            if each["kind"] != "Pod" and service["spec"]["selector"].items() <= each["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert len(pods) == (2 if name == "population-values.yaml" and service["metadata"]["name"] == "herd-learner" else 1)
        for each in pods:
            ports = {port["name"]: port["containerPort"] for port in container_of(each)["ports"]}
            assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports


def component_label(workload: Object) -> str:
    """The component that a workload belongs to."""
    return str(workload["metadata"]["labels"]["app.kubernetes.io/component"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *((name, ()) for name in CI_FILES),
        ("population-values.yaml", ("learner.shards=2", "experiment.agents=3")),
        ("default-values.yaml", ("experiment.replay.kind=shared", "experiment.learner.queue_batches=16", "replay.replicas=3")),
        ("default-values.yaml", ("experiment.actor.inference=remote", "paramserverReplica.replicas=2", "inference.gpu.enabled=true")),
        ("default-values.yaml", ("experiment.evaluation.interval_seconds=600", "experiment.loss.kind=dice")),
    ],
)
def test_every_process_accepts_its_rendered_settings(name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """And their identities are those of the placement that every other way of starting a run uses."""
    objects = render_ci(name, *with_values(*words))
    pods = [each for each in workloads(objects) if each["kind"] != "Pod"]
    told = {each["metadata"]["name"]: (component_label(each), *read_pod(objects, each, tmp_path)) for each in pods}
    assert len({settings.name for _, settings, _ in told.values()}) == 1
    replicas = {component_label(each): each["spec"].get("replicas", 1) for each in pods}
    (run, *_) = (settings for component, settings, _ in told.values() if component == "learner")
    counts = {"paramserver.replicas": replicas.get("paramserver-replica", 0), "replay_service.replicas": replicas.get("replay", 1)}
    run = load_settings([], [], {}, base=run.model_dump(mode="json"), given=counts)

    def host(place: Place) -> str:
        component, agent = f"herd-{place.component.name}", f"-{place.index // run.learner.shards}" if run.agents > 1 else ""
        if place.service == "learner":
            return f"{component}{agent}-{place.index % run.learner.shards}.{component}"
        return f"{component}-{place.index}.{component}" if place.service == "replay" else component

    placed = {(each.place.component.name, each.identity.agent): each.identity for each in placement(run, on_own_hosts(host))}
    for component, _, identity in told.values():
        # Pods of a Deployment have no numbers, and those of a StatefulSet get theirs from Kubernetes.
        assert replace(identity, index=None) == replace(placed[component, identity.agent], index=None)


@pytest.mark.parametrize("file", EXPERIMENTS)
def test_an_experiment_as_text_or_map_gives_the_same_settings(file: str, tmp_path: Path) -> None:
    path = ROOT / "experiments" / file
    laptop = load_settings([path], [], {})
    shared = with_values("learner.persistence.existingClaim=runs") if laptop.population.strategy == "pbt" else []
    shared += with_values(f"actor.replicas={max(4, laptop.agents)}")
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"experiment": yaml.safe_load(path.read_text())}, sort_keys=False))
    for engine in ENGINES:
        for words in (("--set-file", f"experiment={path}"), ("--values", str(values))):
            objects = render(*words, *shared, engine=engine)
            text = find(objects, "ConfigMap", "herd-experiment")["data"]["experiment.yaml"]
            (tmp_path / "rendered.yaml").write_text(text)
            assert load_settings([tmp_path / "rendered.yaml"], [], {}) == laptop
            assert (("StatefulSet", "herd-bandit") in names(objects)) == laptop.loss.draws_temperatures


def test_null_in_an_experiment_is_kept(tmp_path: Path) -> None:
    """Helm drops nulls from values that have a default in the chart. It must not do so here, because null is a valid setting."""
    objects = render_ci("multi-learner-values.yaml")
    assert settings_of(objects, find(objects, "Deployment", "herd-actor"), tmp_path).optimizer.max_gradient_norm is None


@pytest.mark.parametrize("engine", ENGINES)
def test_numbers_given_by_helm_set_stay_numbers(engine: str, tmp_path: Path) -> None:
    """``--set`` turns everything that is not a whole number into text."""
    words = ["optimizer.learning_rate=0.0015", "optimizer.epsilon=1e-3", "algorithm.discount=.95", "learner.batch_size=64"]
    words += ["stop.env_frames=2.5e9"]
    objects = render(*(word for each in words for word in ("--set", f"experiment.{each}")), engine=engine)
    settings = settings_of(objects, find(objects, "StatefulSet", "herd-learner"), tmp_path)
    assert settings.optimizer == RMSPropSettings(learning_rate=0.0015, epsilon=0.001)
    assert (settings.algorithm.discount, settings.learner.batch_size, settings.stop.env_frames) == (0.95, 64, 2_500_000_000)
    scaled = render(
        "--set", "actor.autoscaling.enabled=true,actor.autoscaling.kind=keda,actor.autoscaling.targetStarvation=0.25", engine=engine
    )
    assert "* 750 / 1000" in find(scaled, "ScaledObject", "herd-actor")["spec"]["triggers"][0]["metadata"]["query"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--set", "experiment.optimizer.learning_rate=fast"], "learning_rate"),
        (["--set", "experiment.optimizer.learning_rate=1.2.3"], "learning_rate"),
        (with_values("experiment.learner.batchsize=3"), "batchsize"),
        (with_values("experiment.learner.batch_size=0"), "batch_size"),
        (with_values("actor.replica=3"), "replica"),
        (with_values("actor.replicas=-1"), "replicas"),
        (with_values("learner.gpu.enabled=yes"), "enabled"),
        (with_values("actor.image.digest=latest"), "digest"),
        (["--set", "experiment.stop.env_frames=2.5"], "env_frames"),
        # Kubernetes rejects these too, but only in the middle of an install.
        (["--set", "actor.annotations.cost=12"], "cost"),
        (with_values('learner.nodeSelector={"gpu": true}'), "gpu"),
        (with_values('actor.env=[{"name": "A", "value": 1}]'), "env.0.value"),
        (with_values("actor.rollout.maxUnavailable=some"), "maxUnavailable"),
        (with_values("learner.persistence.size=ten"), "size"),
        (with_values("learner.sharedMemory=1GB"), "sharedMemory"),
        (with_values("experiment=a: [b"), "not a map of settings in YAML"),
        (with_values("experiment=just words"), "not a map of settings in YAML"),
        (with_values("experiment=learner: 3"), "learner must be a map of settings"),
        (with_values("experiment.population.strategy=pbt"), "learner.persistence.existingClaim"),
        (with_values("experiment.agents=5"), "4 actors for 5 agents"),
        (
            with_values(
                "experiment.agents=3",
                "actor.autoscaling.enabled=true",
                "actor.autoscaling.minReplicas=1",
                "actor.autoscaling.maxReplicas=2",
            ),
            "2 actors for 3 agents",
        ),
        (with_values("experiment.agents=3", 'actor.groups={"a": {"replicas": 1}, "b": {"replicas": 1}}'), "2 actors for 3 agents"),
        (with_values("experiment.security.curve_keys=keys"), "security.curve.existingSecret"),
        (with_values('learner.env=[{"name": "RANK", "value": "3"}]'), "RANK cannot be set"),
        (with_values('actor.env=[{"name": "A"}, {"name": "A"}]'), "A is given twice"),
        (
            with_values("actor.autoscaling.enabled=true", "actor.autoscaling.minReplicas=9", "actor.autoscaling.maxReplicas=8"),
            "minReplicas",
        ),
        (with_values("paramserver.persistence.enabled=true"), "persistence"),
        (with_values("actor.groups.spot.replica=3"), "replica"),
        (with_values("actor.groups.spot.groups.more.replicas=3"), "groups"),
        (with_values('actor.groups={"Spot": {}}'), "Spot"),
        (with_values('actor.groups={"a-name-that-is-too-long-here": {}}'), "a-name-that-is-too-long-here"),
        (
            with_values('actor.groups.spot.autoscaling={"enabled": true, "minReplicas": 2000}'),
            "actor.groups.spot.autoscaling.minReplicas is above",
        ),
        (with_values("fullnameOverride=a-name-that-is-longer-than-32-characters"), "fullnameOverride"),
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_invalid_values_are_refused_by_name(engine: str, words: list[str], line: str) -> None:
    with pytest.raises(RenderError, match=line):
        render(*words, engine=engine)


def test_full_names_are_short_and_distinct_for_any_release_name() -> None:
    def fullname(release: str) -> str:
        (deployment,) = [each for each in render(release=release) if each["kind"] == "Deployment"]
        return str(deployment["metadata"]["name"]).removesuffix("-actor")

    assert fullname("herd") == "herd"
    assert fullname("my-herd") == "my-herd"
    assert fullname("breakout") == "breakout-herd"
    long = [fullname(f"an-experiment-with-a-name-of-many-words-{number}") for number in (1, 2)]
    assert all(len(name) <= 32 for name in long)
    assert long[0] != long[1]


def test_shared_keys_apply_to_every_component() -> None:
    """Every component supports each of the shared keys."""
    given: dict[str, Any] = {
        "nodeSelector": {"a": "b"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule"}],
        "priorityClassName": "mine",
        "terminationGracePeriodSeconds": 77,
    }
    components = tuple(IN_VALUES.values())
    more = {
        "labels": {"queue": "q"},
        "workloadLabels": {"kueue.x-k8s.io/queue-name": "q"},
        "annotations": {"note": "n"},
        "env": [{"name": "OMP_NUM_THREADS", "value": "9"}],
        "envFrom": [{"secretRef": {"name": "storage"}}],
        "extraArgs": ["--seed=7"],
        "image": {"registry": "own", "tag": "t"},
    }
    words = [
        word for each in components for key, value in (given | more).items() for word in with_values(f"{each}.{key}={json.dumps(value)}")
    ]
    pods = [each for each in workloads(render_all(*words)) if each["kind"] != "Pod"]
    assert len(pods) == len(components)
    for workload in pods:
        spec, container, metadata = pod_of(workload), container_of(workload), workload["spec"]["template"]["metadata"]
        (spread,) = spec.pop("topologySpreadConstraints")
        assert spread.pop("labelSelector")["matchLabels"] == workload["spec"]["selector"]["matchLabels"]
        assert spread == given["topologySpreadConstraints"][0]
        rest = {key: value for key, value in given.items() if key not in {"topologySpreadConstraints", "tolerations"}}
        assert {key: spec[key] for key in rest} == rest
        assert given["tolerations"][0] in spec["tolerations"]
        assert metadata["labels"]["queue"] == "q"
        assert workload["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
        assert "kueue.x-k8s.io/queue-name" not in metadata["labels"]
        assert metadata["annotations"]["note"] == "n"
        assert container["envFrom"] == more["envFrom"]
        assert [each["value"] for each in container["env"] if each["name"] == "OMP_NUM_THREADS"] == ["9"]
        assert container["args"][-1] == "--seed=7"
        assert container["image"].startswith("own/herd-")
        assert container["image"].endswith(":t")


@pytest.mark.parametrize(("words", "is_there"), [((), True), (("networkPolicy.enabled=false",), False)])
def test_network_policies_can_be_disabled(words: tuple[str, ...], is_there: bool) -> None:
    objects = render_all(*with_values(*words))
    policies = {each["metadata"]["name"] for each in objects if each["kind"] == "NetworkPolicy"}
    components = (*COMPONENT_NAMES, "test", "default-deny")
    assert policies == ({f"herd-{each}" for each in components} if is_there else set())


TALK = {
    ("learner", "learner", None),  # the rendezvous, and the ports that torch opens after it
    *(
        (component.name, other.name, other.service.port)
        for component in COMPONENTS
        for asks in component.asks
        for other in COMPONENTS
        if other.name in asks.components
    ),
}


def test_rendered_workloads_match_the_component_table() -> None:
    pods = {each["metadata"]["name"].removeprefix("herd-"): each for each in workloads(render_all())}
    assert {name for name, each in pods.items() if each["kind"] != "Pod"} == set(COMPONENT_NAMES)
    for component in COMPONENTS:
        service, container = component.service, container_of(pods[component.name])
        ports = {port["containerPort"] for port in container["ports"]}
        assert ports == {METRICS_PORT, service.port, service.group_port} - {None}
        assert container["image"].rpartition(":")[0].endswith(f"herd-{service.name}")


def test_network_policies_allow_exactly_the_needed_connections() -> None:
    """Both ends allow what the protocol needs, and nothing more."""
    policies = [each for each in render_all() if each["kind"] == "NetworkPolicy"]
    policies.append(find(render_ci("population-values.yaml"), "NetworkPolicy", "herd-learner"))
    component = "app.kubernetes.io/component"
    outgoing: set[tuple[str, str, int]] = set()
    incoming: set[tuple[str, str, int]] = set()
    for policy in policies:
        own = policy["spec"]["podSelector"]["matchLabels"].get(component)
        if own is None:
            assert set(policy["spec"]) == {"podSelector", "policyTypes"}
            assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
            continue
        for direction, key, pairs in (("egress", "to", outgoing), ("ingress", "from", incoming)):
            for rule in policy["spec"].get(direction, []):
                ports = [port["port"] for port in rule.get("ports", [{"port": None}])]
                if ports in ([53, 53, 5353, 5353], [9400]):
                    continue
                for peer in rule[key]:
                    other = peer["podSelector"]["matchLabels"][component]
                    pairs |= {(own, other, port) if direction == "egress" else (other, own, port) for port in ports}
    assert outgoing == TALK
    assert incoming == TALK


@pytest.mark.parametrize(
    ("words", "is_open"),
    [
        ((), False),
        (("experiment.copy_to=s3://bucket/run",), True),
        (("experiment.logging.mlflow=https://host",), True),
        (("experiment.logging.wandb=online",), True),
        (("experiment.logging.wandb=offline",), False),
    ],
)
def test_learners_reach_outside_servers_only_if_the_experiment_names_one(words: tuple[str, ...], is_open: bool) -> None:
    rules = find(render(*with_values(*words)), "NetworkPolicy", "herd-learner")["spec"]["egress"]
    assert ({"ports": [{"port": 443, "protocol": "TCP"}]} in rules) is is_open


def test_metrics_access_can_be_restricted() -> None:
    anybody = find(render(), "NetworkPolicy", "herd-actor")["spec"]["ingress"]
    assert anybody == [{"ports": [{"port": 9400, "protocol": "TCP"}]}]
    narrowed = find(render_ci("gpu-values.yaml"), "NetworkPolicy", "herd-actor")["spec"]["ingress"][-1]["from"]
    assert [set(peer) for peer in narrowed] == [{"namespaceSelector"}, {"podSelector"}]
    assert narrowed[1]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "test"


def test_pods_mount_only_the_keys_of_their_roles() -> None:
    objects = render_all(*with_values("security.curve.existingSecret=k", 'security.curve.clients=["default", "old"]'))
    files = {
        "client": {"server.public", "client-default.secret"},
        "server": {"server.secret", "client-default.public", "client-old.public"},
    }
    wanted = {component.name: set().union(*(files[role] for role in component.roles)) for component in COMPONENTS}
    for workload in workloads(objects):
        if workload["kind"] == "Pod":
            assert "volumes" not in pod_of(workload)
            continue
        (keys,) = [volume["secret"] for volume in pod_of(workload)["volumes"] if volume["name"] == "keys"]
        assert keys["secretName"] == "k"
        assert keys["defaultMode"] == 0o440
        component = workload["metadata"]["labels"]["app.kubernetes.io/component"]
        assert {item["key"] for item in keys["items"]} == {item["path"] for item in keys["items"]} == wanted[component]
        assert "--security.curve_keys=/etc/herd-keys" in container_of(workload)["args"]


@pytest.mark.parametrize("engine", ENGINES)
def test_lists_and_maps_may_be_null(engine: str, tmp_path: Path) -> None:
    """Null in a values file removes the chart's default."""
    nulls: dict[str, Any] = {}
    for value in read_values():
        if not value.is_section and value.default in ([], {}):
            section = nulls
            for name in value.path[:-1]:
                section = section.setdefault(name, {})
            section[value.path[-1]] = None
    file = tmp_path / "nulls.yaml"
    file.write_text(yaml.safe_dump(nulls))
    assert render("--values", str(file), engine=engine) == render(engine=engine)


def test_common_labels_are_everywhere_but_in_selectors() -> None:
    for each in render(*with_values('commonLabels={"team": "rl"}')):
        assert each["metadata"]["labels"]["team"] == "rl"
        assert "team" not in str(each["spec"].get("selector", "") if "spec" in each else "")


def test_the_notes_name_the_next_steps() -> None:
    def notes(name: str, *words: str) -> str:
        install = ("install", "herd", str(CHART), "--namespace", "rl", "--dry-run=client", "--values", str(CHART / "ci" / name))
        return helm(NEWEST, *install, *words)

    default, gpu = notes("default-values.yaml"), notes("gpu-values.yaml")
    population = notes("population-values.yaml")
    warned = ("WARNING: checkpoints are stored in the pod", "WARNING: image.registry is empty")
    for words in ("helm test herd --namespace rl", "port-forward", *warned, "herd keys keys"):
        assert words in default
    assert "kubectl --namespace rl scale deployment herd-actor --replicas=100" in default
    assert "2 learner(s) of 1 shard(s)" in population
    assert ", population" in population
    assert "WARNING" not in gpu
    assert warned[0] not in notes("default-values.yaml", "--set", "experiment.copy_to=s3://bucket/run")  # the run continues from its copy
    assert ("`herd status` shows pods but no numbers" in gpu, "shows pods but no numbers" in default) == (True, False)
    assert "herd keys" not in gpu


def test_helm_lint_passes() -> None:
    for engine in ENGINES:
        said = helm(engine, "lint", "--strict", str(CHART))
        assert "0 chart(s) failed" in said
        assert "[INFO]" not in said  # without hints such as a recommended icon


def test_the_package_excludes_test_values(tmp_path: Path) -> None:
    helm(NEWEST, "package", str(CHART), "--destination", str(tmp_path))
    with tarfile.open(next(tmp_path.glob("herd-*.tgz"))) as package:
        inside = package.getnames()
    assert "herd/values.schema.json" in inside
    assert not any("/ci/" in name for name in inside)
