"""A run with an end removes what it no longer needs, with no more rights than that takes."""

from __future__ import annotations

import kubernetes_validate
import pytest

from herd.telemetry import run_end
from tests.helm.rendering import CHART, NEWEST, Object, at, find, helm, names, render, render_ci, with_values

pytestmark = pytest.mark.processes

ENDS = "experiment.stop.env_frames=1000"
COPIED = "experiment.copy_to=s3://bucket/run"
KEPT = ("learner.persistence.enabled=true", "bandit.persistence.enabled=true", "evaluator.persistence.enabled=true")


def calls(objects: list[Object]) -> list[str]:
    """The arguments of the pod."""
    (container,) = at(find(objects, "CronJob", "herd-run-end"), "spec jobTemplate spec template spec containers")
    assert container["command"] == ["python", "-m", run_end.__name__]
    return [word for word in container["args"] if not word.startswith("--learner=")]


@pytest.mark.parametrize(("words", "is_there"), [((), False), ((ENDS,), True), ((ENDS, "runEnd.release=false"), False)])
def test_it_exists_only_for_a_run_with_an_end(words: tuple[str, ...], is_there: bool) -> None:
    kinds = {kind for kind, name in names(render(*with_values(*words))) if name == "herd-run-end"}
    assert kinds == ({"CronJob", "ServiceAccount", "Role", "RoleBinding", "NetworkPolicy"} if is_there else set())


@pytest.mark.parametrize(
    ("words", "removed"),
    [
        ((), {"--remove=deployments/herd-actor", "--keep-learners"}),
        (KEPT, {"--remove=deployments/herd-actor"}),
        ((COPIED,), {"--remove=deployments/herd-actor", "--needs-copy"}),
        ((*KEPT, COPIED), {"--remove=deployments/herd-actor"}),
        ((*KEPT, COPIED, "learner.persistence.retention.whenDeleted=Delete"), {"--remove=deployments/herd-actor", "--needs-copy"}),
        ((COPIED, 'runEnd.keep=["learner", "paramserver"]'), {"--remove=deployments/herd-actor", "--keep-learners"}),
        ((*KEPT, "learner.persistence.retention.whenDeleted=Delete"), {"--remove=deployments/herd-actor", "--keep-learners"}),
        (
            (*KEPT, 'runEnd.keep=["learner"]'),
            {"--remove=deployments/herd-actor", "--keep-learners", "--remove=statefulsets/herd-paramserver"},
        ),
        ((*KEPT, 'actor.groups={"a": {}, "b": {}}'), {"--remove=deployments/herd-actor-a", "--remove=deployments/herd-actor-b"}),
    ],
)
def test_nothing_is_removed_that_holds_the_runs_files(words: tuple[str, ...], removed: set[str]) -> None:
    assert set(calls(render(*with_values(ENDS, *words)))) == removed


@pytest.mark.parametrize("name", ["multi-learner-values.yaml", "population-values.yaml"])
def test_every_workload_goes_if_nothing_is_to_stay(name: str) -> None:
    """And the account may touch these alone."""
    objects = render_ci(name, *with_values(ENDS, "runEnd.keep=[]", *KEPT))
    own = {f"{each['kind'].lower()}s/{each['metadata']['name']}" for each in objects if each["kind"] in {"Deployment", "StatefulSet"}}
    assert {word.removeprefix("--remove=") for word in calls(objects)} == {each for each in own if "herd-learner" not in each}
    rules = find(objects, "Role", "herd-run-end")["rules"]
    assert {f"{rule['resources'][0]}/{name}" for rule in rules for name in rule["resourceNames"]} == own
    assert {tuple(rule["verbs"]) for rule in rules} == {("get", "delete")}


def test_each_agent_is_asked_at_all_its_shards() -> None:
    job = find(render(*with_values(ENDS, "experiment.agents=2", "learner.shards=2")), "CronJob", "herd-run-end")
    (container,) = at(job, "spec jobTemplate spec template spec containers")
    assert [word for word in container["args"] if word.startswith("--learner=")] == [
        f"--learner=herd-learner-{agent}=" + ",".join(f"http://herd-learner-{agent}-{rank}.herd-learner:9400" for rank in range(2))
        for agent in range(2)
    ]


def test_its_pod_is_restricted_and_alone_has_a_token() -> None:
    objects = render(*with_values(ENDS, "runEnd.pod.nodeSelector.a=b"))
    job = find(objects, "CronJob", "herd-run-end")
    for version in ("1.32", "1.37"):
        kubernetes_validate.validate(job, version, strict=True)
    spec = at(job, "spec jobTemplate spec template spec")
    (container,) = spec["containers"]
    assert (spec["automountServiceAccountToken"], spec["serviceAccountName"], spec["nodeSelector"]) == (True, "herd-run-end", {"a": "b"})
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {"cpu", "memory"} <= set(container["resources"]["limits"])
    # Where metrics are restricted, it may still read those of the learner.
    (*_, metrics) = find(render_ci("gpu-values.yaml", *with_values(ENDS)), "NetworkPolicy", "herd-learner")["spec"]["ingress"]
    components = {peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in metrics["from"] if "podSelector" in peer}
    assert components == {"test", "run-end"}


def test_the_notes_say_what_goes() -> None:
    def notes(*words: str) -> str:
        return helm(NEWEST, "install", "herd", str(CHART), "--namespace", "rl", "--dry-run=client", *with_values(*words))

    assert "the learners, whose files stay on their claims" in notes(ENDS, *KEPT)
    assert "the learners, if their last copy to object storage is complete" in notes(ENDS, COPIED)
    assert "The learners stay" in notes(ENDS)
    assert "reached its stop" not in notes()
