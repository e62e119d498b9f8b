"""A population: one learner StatefulSet per member, one Deployment of actors for all, one controller and one volume."""

from __future__ import annotations

import pytest

from tests.helm.rendering import (
    Object,
    RenderError,
    at,
    container_of,
    find,
    pod_of,
    render_ci,
    with_values,
    workloads,
)

pytestmark = pytest.mark.processes

FILE = "population-values.yaml"


def test_every_member_has_its_own_learners() -> None:
    objects = render_ci(FILE, *with_values("learner.shards=2", "experiment.agents=3"))
    hosts = [f"herd-learner-{agent}-{rank}.herd-learner" for agent in range(3) for rank in range(2)]
    for agent in range(3):
        name = f"herd-learner-{agent}"
        member = find(objects, "StatefulSet", name)
        assert member["spec"]["serviceName"] == "herd-learner"
        assert member["spec"]["selector"]["matchLabels"].items() <= member["spec"]["template"]["metadata"]["labels"].items()
        assert at(container_of(member), "env MASTER_ADDR value") == f"{name}-0.herd-learner"
    selectors = [each["spec"]["selector"]["matchLabels"] for each in workloads(objects) if each["kind"] == "StatefulSet"]
    assert len({str(sorted(selector.items())) for selector in selectors}) == len(selectors)
    test = container_of(find(objects, "Pod", "herd-test"))["args"]
    assert [word for word in test if word.startswith("--learner")] == [f"--learner=http://{host}:9400" for host in hosts]
    assert "--ready=http://herd-population:9400" in test


def test_members_must_share_a_volume() -> None:
    def claim(workload: Object) -> str | None:
        (run,) = [each for each in pod_of(workload)["volumes"] if each["name"] == "run"]
        name: str | None = run.get("persistentVolumeClaim", {}).get("claimName")
        return name

    objects = render_ci(FILE)
    assert {claim(find(objects, "StatefulSet", f"herd-{name}")) for name in ("learner-0", "learner-1", "population")} == {"runs"}
    with pytest.raises(RenderError, match="members read each other's checkpoints"):
        render_ci(FILE, *with_values("learner.persistence.existingClaim="), *with_values("learner.persistence.enabled=true"))


def test_member_settings_restart_only_members_and_controller() -> None:
    def checksums(*words: str) -> dict[str, str]:
        objects = render_ci(FILE, *with_values(*words))
        return {
            name: find(objects, kind, f"herd-{name}")["spec"]["template"]["metadata"]["annotations"]["checksum/experiment"]
            for name, kind in (
                ("population", "StatefulSet"),
                ("actor", "Deployment"),
                ("learner-0", "StatefulSet"),
                ("paramserver", "StatefulSet"),
            )
        }

    before = checksums()
    for words in (
        "experiment.population.threshold=0.1",
        'experiment.sweep={"loss.entropy_cost": {"draw": "uniform", "low": 0, "high": 1}}',
    ):
        after = checksums(words)
        assert {name for name in before if before[name] != after[name]} == {"population", "learner-0"}
