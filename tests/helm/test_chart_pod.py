"""The value ``pod`` of every component and of the self-test is merged over the pod spec of the chart."""

from __future__ import annotations

import json
from collections.abc import Iterable

import kubernetes_validate
import pytest

from helm.tools.fetch_tools import ENGINES
from herd.topology import COMPONENT_NAMES
from tests.helm.rendering import Object, find, pod_of, render, render_all, with_values, workloads
from tests.helm.test_chart_renders import IN_VALUES

pytestmark = pytest.mark.processes

SIDECAR = {"name": "logs", "image": "vector", "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}}}
GATEKEEPER = {"name": "roms", "image": "roms", "securityContext": {"readOnlyRootFilesystem": False}}
KEEPER = {"restartPolicy": "Always", "name": "tunnel", "image": "tunnel"}


def patch(container: str) -> Object:
    """Settings that platform engineers typically ask for, all at once."""
    return {
        "schedulerName": "volcano",
        "runtimeClassName": "gvisor",
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "resourceClaims": [{"name": "nic", "resourceClaimTemplateName": "rdma"}],
        "securityContext": {"fsGroup": 77},
        "initContainers": [GATEKEEPER, KEEPER],
        "volumes": [{"name": "roms", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "tmp", "emptyDir": {"sizeLimit": "9Gi"}}],
        "containers": [
            {
                "name": container,
                "envFrom": [{"secretRef": {"name": "login"}}],
                "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
                "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
                "volumeMounts": [{"name": "roms", "mountPath": "/roms"}],
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                "resources": {"claims": [{"name": "nic"}], "limits": {"memory": "99Gi"}},
                "livenessProbe": {"failureThreshold": 60},
            },
            SIDECAR,
        ],
    }


def named(items: Iterable[Object], name: str) -> Object:
    (found,) = [each for each in items if each["name"] == name]
    return found


def service(component: str) -> str:
    return component.removesuffix("-replica")


@pytest.fixture(scope="module")
def patched() -> dict[str, Object]:
    """The workload of each component, with the patch applied."""
    words = [word for name, key in IN_VALUES.items() for word in with_values(f"{key}.pod={json.dumps(patch(service(name)))}")]
    objects = [each for each in workloads(render_all(*words)) if each["kind"] != "Pod"]
    return {each["metadata"]["labels"]["app.kubernetes.io/component"]: each for each in objects}


@pytest.fixture(scope="module")
def plain() -> dict[str, Object]:
    objects = [each for each in workloads(render_all()) if each["kind"] != "Pod"]
    return {each["metadata"]["labels"]["app.kubernetes.io/component"]: each for each in objects}


@pytest.mark.parametrize("component", COMPONENT_NAMES)
def test_pod_values_are_merged_for_every_component(patched: dict[str, Object], plain: dict[str, Object], component: str) -> None:
    spec, before = pod_of(patched[component]), pod_of(plain[component])
    given = patch(service(component))
    whole = ("schedulerName", "runtimeClassName", "hostNetwork", "dnsPolicy", "dnsConfig", "resourceClaims")
    assert {key: spec[key] for key in whole} == {key: given[key] for key in whole}
    assert spec["securityContext"] == before["securityContext"] | {"fsGroup": 77}
    main, own = named(spec["containers"], service(component)), named(before["containers"], service(component))
    wanted = given["containers"][0]
    assert (main["envFrom"], main["lifecycle"]) == (wanted["envFrom"], wanted["lifecycle"])
    assert main["env"] == [*own["env"], *wanted["env"]]
    assert main["args"] == own["args"]
    assert main["volumeMounts"] == [*own["volumeMounts"], *wanted["volumeMounts"]]
    assert main["livenessProbe"] == own["livenessProbe"] | {"failureThreshold": 60}
    assert main["resources"]["limits"] == own["resources"]["limits"] | {"memory": "99Gi"}
    assert main["resources"]["requests"] == own["resources"]["requests"]
    assert main["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"], "drop": ["ALL"]}
    # Lists merge by name: the chart's own volume is changed rather than repeated.
    names = [each["name"] for each in spec["volumes"]]
    assert names == [*(each["name"] for each in before["volumes"]), "roms"]
    assert named(spec["volumes"], "tmp")["emptyDir"] == {"sizeLimit": "9Gi"}


@pytest.mark.parametrize("component", COMPONENT_NAMES)
def test_added_containers_are_hardened_by_default(patched: dict[str, Object], component: str) -> None:
    spec = pod_of(patched[component])
    main, sidecar = spec["containers"]
    assert sidecar == SIDECAR | {"securityContext": main["securityContext"] | {"capabilities": {"drop": ["ALL"]}}}
    assert spec["initContainers"] == [GATEKEEPER, KEEPER | {"securityContext": sidecar["securityContext"]}]


def test_merged_pods_are_valid_for_kubernetes(patched: dict[str, Object]) -> None:
    for workload in patched.values():
        kubernetes_validate.validate(workload, "1.36", strict=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_null_removes_a_key_and_other_lists_are_replaced(engine: str) -> None:
    values = {"enableServiceLinks": None, "tolerations": [{"key": "own", "operator": "Exists"}]}
    words = with_values("actor.spot.enabled=true", f"actor.pod={json.dumps(values)}")
    spec = pod_of(find(render(*words, engine=engine), "Deployment", "herd-actor"))
    assert "enableServiceLinks" not in spec
    assert spec["tolerations"] == values["tolerations"]


def test_pod_values_are_merged_for_the_self_test() -> None:
    given = {"nodeSelector": {"pool": "cpu"}, "tolerations": [{"key": "k", "operator": "Exists"}], "priorityClassName": "mine"}
    test = find(render(*with_values(f"selfTest.pod={json.dumps(given)}", 'selfTest.annotations={"note": "n"}')), "Pod", "herd-test")
    assert {key: test["spec"][key] for key in given} == given
    assert test["metadata"]["annotations"]["note"] == "n"
    assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert test["spec"]["containers"] == find(render(), "Pod", "herd-test")["spec"]["containers"]


def test_defaults_reach_every_component_and_own_values_win() -> None:
    objects = render_all(
        *with_values(
            "defaults.terminationGracePeriodSeconds=77", "defaults.image.tag=v9", "defaults.labels.team=rl", "bandit.image.tag=v1"
        ),
        *with_values("defaults.podDisruptionBudget.enabled=true", "replay.podDisruptionBudget.enabled=false"),
        *with_values("selfTest.enabled=false"),
    )
    seconds = {each["metadata"]["name"]: pod_of(each)["terminationGracePeriodSeconds"] for each in workloads(objects)}
    assert {name: number for name, number in seconds.items() if number != 77} == {"herd-learner": 120, "herd-replay": 120}
    tags = {each["metadata"]["name"]: pod_of(each)["containers"][0]["image"].rpartition(":")[2] for each in workloads(objects)}
    assert {name: tag for name, tag in tags.items() if tag != "v9"} == {"herd-bandit": "v1"}
    assert all(each["spec"]["template"]["metadata"]["labels"]["team"] == "rl" for each in workloads(objects))
    budgets = {each["metadata"]["name"] for each in objects if each["kind"] == "PodDisruptionBudget"}
    assert "herd-bandit" in budgets
    assert not budgets & {"herd-replay", "herd-learner"}  # false overrides true
