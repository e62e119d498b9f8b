"""The life of a release where no pod runs (``CLUSTER_PROCESSES=0``): only objects, on a real API server. The tests depend on their
order.

Neither nodes, images nor a scheduler are needed. Where controllers run, pods exist but stay pending; on a bare API server there are
none, and the tests assert that.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.cluster.cluster_settings import ACTORS, OTHER_LEARNING_RATE
from tests.cluster.conftest import Installed
from tests.cluster.helm_release import HelmError
from tests.cluster.herd_command import herd
from tests.cluster.live_objects import (
    MADE_BY_OTHERS,
    Key,
    Object,
    changed_components,
    differences,
    installed_objects,
    live_objects,
    pod_templates,
)
from tests.cluster.live_release import WithoutControllersError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3_600)]


def objects(installed: Installed) -> dict[Key, Object]:
    return live_objects(installed.live.cluster, installed.helm.name)


def revisions(installed: Installed) -> dict[str, str]:
    """Template revision of each learner pod, which names its group of shards. Each agent has its own template."""
    label = "controller-revision-hash"
    pods = (item for (kind, name), item in objects(installed).items() if kind == "Pod" and "-learner-" in name)
    return {item["metadata"]["name"]: item["metadata"]["labels"][label] for item in pods}


def update_revisions(found: dict[Key, Object]) -> set[str]:
    """The newest revision of each learner's template, according to its controller."""
    sets = [item for (kind, name), item in found.items() if kind == "StatefulSet" and "-learner" in name]
    return {str(each["status"].get("updateRevision", "")) for each in sets}


@pytest.fixture(scope="module")
def controllers(installed: Installed) -> bool:
    """Whether controllers create pods from workloads here."""
    try:
        installed.live.until_observed()
    except WithoutControllersError:
        return False
    return True


@pytest.fixture(scope="module")
def first(installed: Installed) -> dict[Key, Object]:
    """The objects that the install created, before any test changed them."""
    return objects(installed)


def test_every_object_of_the_chart_is_installed_as_rendered(installed: Installed, first: dict[Key, Object]) -> None:
    rendered = installed_objects(installed.helm.template(installed.settings.values(volumes=installed.volumes)))
    there = {key for key in first if key[0] not in MADE_BY_OTHERS}
    assert there == set(rendered)
    changed = {key: list(differences(item, first[key])) for key, item in rendered.items()}
    assert {key: found for key, found in changed.items() if found} == {}


def test_every_workload_has_its_number_of_pods(installed: Installed, controllers: bool) -> None:
    if not controllers:
        assert installed.live.pods() == []
        return
    live = installed.live
    counted = live.until(
        "as many pods as are wanted",
        lambda: dict(Counter(pod.component for pod in live.lasting())),
        lambda found: found == installed.settings.pods(),
    )
    assert counted == installed.settings.pods()
    # The pods are created in parallel: here no pod ever becomes ready.
    assert {pod.rank for pod in live.lasting("learner")} == set(range(installed.settings.shards))
    assert set(revisions(installed).values()) == update_revisions(objects(installed))


def test_status_shows_the_wanted_numbers_of_pods(installed: Installed) -> None:
    said = json.loads(herd(installed, "status", "--seconds", "0", "--json"))
    assert {name: row["wanted"] for name, row in said["components"].items()} == installed.settings.pods()
    assert said["frames_per_second"] is None
    assert not any(pod["ready"] for pod in said["pods"])
    assert f"{installed.helm.name} in namespace {installed.helm.namespace}" in herd(installed, "status", "--seconds", "0")


def test_a_deleted_pod_is_replaced(installed: Installed, controllers: bool) -> None:
    for component in installed.settings.pods():
        if not controllers:
            assert installed.live.pods(component) == []
            continue
        others = {pod.uid for pod in installed.live.lasting() if pod.component != component}
        installed.live.kill(component, processes=False)
        assert {pod.uid for pod in installed.live.lasting() if pod.component != component} == others


def test_an_upgrade_of_the_learning_rate_changes_only_learners(installed: Installed, first: dict[Key, Object], controllers: bool) -> None:
    """It also changes the template of the population's controller, which knows the learners' settings."""
    before = update_revisions(objects(installed))
    installed.helm.upgrade(installed.settings.values(volumes=installed.volumes, learning_rate=OTHER_LEARNING_RATE))
    assert changed_components(first, objects(installed)) == installed.settings.changed_by_upgrade()
    if not controllers:
        return
    newest = installed.live.until("a new version", lambda: update_revisions(objects(installed)), lambda found: not found & before)

    def replaced() -> set[str]:
        # Here no pod becomes ready, so the controller need not replace all of them by itself.
        for name, held in revisions(installed).items():
            if held not in newest:
                installed.live.delete(name, 0)
        return set(revisions(installed).values())

    installed.live.until("learners of the new version", replaced, lambda found: found == newest)


def test_a_rollback_restores_templates_and_settings(installed: Installed, first: dict[Key, Object]) -> None:
    installed.helm.rollback(1)
    now = objects(installed)
    assert pod_templates(now) == pod_templates(first)
    [(key, _)] = [(key, item) for key, item in first.items() if key[0] == "ConfigMap"]
    assert now[key]["data"] == first[key]["data"]


def actors(installed: Installed) -> int:
    """Number of actors requested."""
    [deployment] = [item for (kind, name), item in objects(installed).items() if kind == "Deployment" and name.endswith("-actor")]
    return int(deployment["spec"]["replicas"])


def test_an_upgrade_keeps_a_manually_scaled_number_of_actors(installed: Installed, first: dict[Key, Object]) -> None:
    installed.live.scale("actor", ACTORS + 3)
    installed.helm.upgrade(installed.settings.values(volumes=installed.volumes, learning_rate=OTHER_LEARNING_RATE))
    assert installed.helm.status() == "deployed"
    assert actors(installed) == ACTORS + 3
    assert changed_components(first, objects(installed)) == installed.settings.changed_by_upgrade()


def test_a_rollback_restores_the_number_of_actors(installed: Installed, first: dict[Key, Object]) -> None:
    """Helm 4 does so only when forced. Otherwise it writes everything except the number of actors, and reports the conflict."""
    if installed.helm.major() > 3:
        with pytest.raises(HelmError, match=r"conflict.*: \.spec\.replicas"):
            installed.helm.rollback(1)
        assert installed.helm.status() == "failed"
        assert actors(installed) == ACTORS + 3
        assert changed_components(first, objects(installed)) == set()
        installed.helm.rollback(1, force_conflicts=True)
    else:
        installed.helm.rollback(1)
    assert installed.helm.status() == "deployed"
    assert actors(installed) == ACTORS
    assert pod_templates(objects(installed)) == pod_templates(first)


def test_an_upgrade_sets_a_given_number_of_actors(installed: Installed) -> None:
    values = installed.settings.values(volumes=installed.volumes)
    values["actor"]["replicas"] = ACTORS + 1
    installed.helm.upgrade(values)
    assert actors(installed) == ACTORS + 1


def test_an_uninstall_removes_everything(installed: Installed) -> None:
    installed.helm.uninstall()

    def left() -> list[str]:
        for pod in installed.live.pods():
            installed.live.delete(pod.name, 0)  # no node confirms that it has ended
        return installed.live.leftovers()

    installed.live.until("nothing left over", left, lambda found: not found)
