"""``herd scale actors N`` as a whole command."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from herd.kube.pods import Pod, read_pod
from herd.kube.release import REPLICAS_FROM_ANNOTATION, read_workload
from herd.kube.scaling import causes
from tests.kube.conftest import Answer, Served
from tests.kube.fake_objects import Json, autoscaler, pending_pod, pod, scaled_object, workload

Herd = Callable[..., Answer]


def controller(item: Json) -> None:
    """Each look at the Deployment finds one pod more, or all of those too many gone."""
    wanted, status = item["spec"]["replicas"], item["status"]
    status["observedGeneration"] = item["metadata"]["generation"]
    ready = min(wanted, status["readyReplicas"] + 1)
    item["status"] |= {"replicas": wanted, "updatedReplicas": wanted, "readyReplicas": ready}


def test_more_actors_and_progress_until_they_are_ready(served: Served, herd_process: Herd) -> None:
    served.fake.on_read = controller
    answer = herd_process("scale", "actors", "5")
    assert (answer.code, answer.errors) == (0, "")
    assert answer.output.splitlines() == ["herd: actors 3 -> 5", "herd: 4 of 5 actors ready", "herd: 5 of 5 actors ready"]
    assert served.fake.patches == [("application/merge-patch+json", {"spec": {"replicas": 5}})]
    [path] = [path for method, path, _ in served.fake.requests if method == "PATCH"]
    assert path == "/apis/apps/v1/namespaces/rl/deployments/herd-actor/scale"


def test_fewer_actors_and_none(served: Served, herd: Herd) -> None:
    served.fake.on_read = controller
    answer = herd("scale", "actors", "0", "--release", "herd")
    assert (answer.code, answer.errors) == (0, "")
    assert answer.output.splitlines()[-1] == "herd: 0 of 0 actors ready"


def test_without_waiting(served: Served, herd: Herd) -> None:
    answer = herd("scale", "actors", "9", "--no-wait")
    assert (answer.code, answer.output, answer.errors) == (0, "herd: actors 3 -> 9\n", "")


def test_what_the_next_upgrade_needs_is_said_where_values_set_the_number(served: Served, herd: Herd) -> None:
    [actors] = [item for item in served.fake.objects["deployments"] if item["metadata"]["namespace"] == "rl"]
    actors["metadata"]["annotations"] = {REPLICAS_FROM_ANNOTATION: "values"}
    answer = herd("scale", "actors", "9", "--no-wait")
    assert (answer.code, answer.output) == (0, "herd: actors 3 -> 9\n")
    assert answer.errors == "herd: the next helm upgrade needs --set actor.replicas=9\n"


def test_not_ready_in_time_says_why(served: Served, herd_process: Herd) -> None:
    served.fake.objects["pods"] += [pending_pod(f"herd-actor-5d9f7c-pend{number}", "actor") for number in range(2)]
    served.fake.on_read = lambda item: item["status"].update(
        replicas=5, updatedReplicas=5, observedGeneration=item["metadata"]["generation"]
    )
    answer = herd_process("scale", "actors", "5", "--timeout", "0")
    assert answer.code == 1
    assert answer.errors == "herd: not ready after 0 s: 2 Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.\n"
    assert answer.output.splitlines()[-1] == "herd: 3 of 5 actors ready"


def test_an_old_status_is_not_taken_for_the_new_one(served: Served, herd: Herd) -> None:
    """Right after the patch the numbers are of the old version: three of three, and not those asked for."""
    answer = herd("scale", "actors", "3", "--timeout", "0")
    assert answer.code == 1


def test_a_server_that_stumbles_is_asked_again(served: Served, herd: Herd) -> None:
    served.fake.on_read = controller
    served.fake.failing[("get", "deployments")] = [500, 503]
    answer = herd("scale", "actors", "4")
    assert answer.code == 0
    assert "trying again" in answer.errors
    assert answer.output.splitlines()[-1] == "herd: 4 of 4 actors ready"


def test_somebody_else_scales_meanwhile(served: Served, herd: Herd) -> None:
    def other(item: Json) -> None:
        item["spec"]["replicas"] = 7

    served.fake.on_read = other
    answer = herd("scale", "actors", "5")
    assert answer.code == 2
    assert answer.errors == "herd: somebody else asked for 7 actors meanwhile\n"


@pytest.mark.parametrize("kind", ["hpa", "keda", "keda without the right to look"])
def test_refused_where_an_autoscaler_decides(served: Served, herd: Herd, kind: str) -> None:
    fake = served.fake
    fake.objects["horizontalpodautoscalers"] = [autoscaler("something-else"), autoscaler("herd-actor", "keda-hpa-herd")]
    if kind == "keda":
        fake.has_keda = True
        fake.objects["scaledobjects"] = [scaled_object("herd-actor", "herd-keda")]
    elif kind != "hpa":
        fake.forbidden.add(("list", "scaledobjects"))
    answer = herd("scale", "actors", "5")
    owner = "ScaledObject herd-keda" if kind == "keda" else "HorizontalPodAutoscaler keda-hpa-herd"
    assert (answer.code, answer.output) == (2, "")
    assert answer.errors.startswith(f"herd: {owner} decides how many actors release herd has")
    assert fake.patches == []


def test_autoscalers_of_others_do_not_count(served: Served, herd: Herd) -> None:
    served.fake.has_keda = True
    served.fake.objects["scaledobjects"] = [scaled_object("web")]
    served.fake.objects["horizontalpodautoscalers"] = [autoscaler("web")]
    assert herd("scale", "actors", "5", "--no-wait").code == 0


@pytest.mark.parametrize(("verb", "resource"), [("list", "horizontalpodautoscalers"), ("patch", "deployments/scale")])
def test_missing_permissions_are_named(served: Served, herd: Herd, verb: str, resource: str) -> None:
    served.fake.forbidden.add((verb, resource))
    answer = herd("scale", "actors", "5")
    assert answer.code == 2
    assert f'this needs verb "{verb}" on resource "{resource}"' in answer.errors
    assert served.fake.patches == []


def test_a_conflict_is_one_line(served: Served, herd: Herd) -> None:
    served.fake.failing[("patch", "deployments/scale")] = [409]
    answer = herd("scale", "actors", "5")
    assert answer.code == 2
    assert "changed by somebody else at the same moment" in answer.errors


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["learner", "2"], "only actors change in number"),
        (["actors", "many"], "invalid int value"),
        (["actors", "-1"], "must be from 0 to 100,000"),
        (["actors", "1000000"], "must be from 0 to 100,000"),
        (["actors"], "N"),
        (["actors", "2", "--timeout", "-3"], "--timeout must be"),
        (["actors", "2", "--release", "hard"], "no release hard in namespace rl; there are: herd"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input(served: Served, herd: Herd, words: list[str], part: str) -> None:
    answer = herd("scale", *words)
    assert (answer.code, answer.output) == (2, "")
    assert part in answer.errors
    assert answer.errors.count("\n") == 1
    assert served.fake.patches == []


def test_several_releases_and_no_name(served: Served, herd: Herd) -> None:
    served.fake.objects["deployments"].append(workload("Deployment", "actor", 1, release="second"))
    answer = herd("scale", "actors", "5")
    assert answer.errors == "herd: which release? there are: herd, second; choose one with --release\n"
    assert served.fake.patches == []


def made(item: Json) -> Pod:
    read = read_pod(item)
    assert read is not None
    return read


def test_causes_are_counted_and_bounded() -> None:
    pods = [made(pending_pod(f"a-{number}", "actor", f"reason {number % 5}")) for number in range(12)]
    assert causes(pods) == "3 Unschedulable: reason 0; 3 Unschedulable: reason 1; 2 Unschedulable: reason 2"
    assert causes([made(pod("b", "actor"))]) == ""


def test_settled_needs_everything() -> None:
    assert read_workload(workload("Deployment", "actor", 3), "Deployment").settled
    for field in ("readyReplicas", "updatedReplicas", "replicas", "observedGeneration"):
        item = workload("Deployment", "actor", 3)
        item["status"][field] = 0 if field != "replicas" else 4
        assert not read_workload(item, "Deployment").settled, field
