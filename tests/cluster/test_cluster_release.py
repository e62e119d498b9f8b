"""The life of a release on a real cluster. The tests depend on their order: each continues from the state that the previous one left.

Run ``make test-cluster`` with KUBECONFIG set; cluster_settings.py lists the other variables.
"""

from __future__ import annotations

import json

import pytest

from herd.telemetry import metric_names as names
from herd.telemetry.scrape import total
from tests.cluster.cluster_settings import ACTORS, LEARNING_RATE, OTHER_LEARNING_RATE
from tests.cluster.conftest import Installed
from tests.cluster.herd_command import herd

# A cluster may take long to pull images; each wait has its own, shorter time-out (CLUSTER_TIMEOUT_SECONDS).
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3_600)]


def uids(installed: Installed, component: str) -> set[str]:
    return {pod.uid for pod in installed.live.lasting(component)}


def starts(installed: Installed, component: str) -> set[tuple[str, int]]:
    """Start counts that change whenever a pod of the component is replaced or its container restarts."""
    return {(pod.uid, pod.restarts) for pod in installed.live.lasting(component)}


def accepted_reports(installed: Installed) -> float:
    return sum(total(each, names.BANDIT_REPORTS.name, outcome="accepted") for each in installed.live.component_samples("bandit"))


def games_of_the_run(installed: Installed) -> float:
    return sum(total(each, names.BANDIT_TILE_REPORTS.name) for each in installed.live.component_samples("bandit"))


def test_every_component_becomes_ready(installed: Installed) -> None:
    release = installed.live.until_settled()
    wanted = {workload.component: workload.wanted for workload in release.workloads}
    assert wanted == {"learner": installed.settings.shards, "paramserver": 1, "paramserver-replica": 1, "bandit": 1, "actor": ACTORS}
    assert {pod.rank for pod in installed.live.pods("learner")} == set(range(installed.settings.shards))


def test_frames_flow_and_games_are_reported(installed: Installed) -> None:
    installed.live.until_frames_flow(least=1_000)
    installed.live.until("games reported to the bandit", lambda: accepted_reports(installed), lambda games: games > 0)
    installed.live.until("a checkpoint", installed.live.observe, lambda seen: (seen.checkpoint_updates or 0) > 0)


def test_status_shows_the_release(installed: Installed) -> None:
    said = json.loads(herd(installed, "status", "--seconds", "5", "--json"))
    assert said["notes"] == []
    assert said["frames_per_second"] > 0
    assert said["bottleneck"] != "starting"
    assert said["actors_asked"] == ACTORS
    assert said["learner_updates"] > 0
    assert all(pod["ready"] and pod["version"] for pod in said["pods"] if pod["component"] != "bandit")
    text = herd(installed, "status", "--seconds", "1")
    assert "catch_deceptive" in text
    assert f"{installed.helm.name} in namespace {installed.helm.namespace}" in text


def test_the_number_of_actors_can_be_scaled(installed: Installed) -> None:
    def scale(number: int) -> None:
        installed.live.scale("actor", number)
        installed.live.until(f"{number} actors", lambda: installed.live.lasting("actor"), lambda pods: len(pods) == number)
        installed.live.until_settled()
        installed.live.until(f"{number} actors with the learner", installed.live.observe, lambda seen: seen.connected_actors == number)

    scale(ACTORS + 2)
    scale(ACTORS)
    installed.live.until_frames_flow()


def test_training_continues_after_an_actor_is_killed(installed: Installed) -> None:
    before = installed.live.until_frames_flow()
    learners = starts(installed, "learner")
    installed.live.kill("actor")
    after = installed.live.until_frames_flow()
    assert starts(installed, "learner") == learners
    assert after.learner_lineage == before.learner_lineage
    assert before.learner_frames is not None
    assert after.learner_frames is not None
    assert after.learner_frames > before.learner_frames


@pytest.mark.parametrize("component", ["paramserver", "paramserver-replica"])
def test_training_continues_after_a_parameter_server_is_killed(installed: Installed, component: str) -> None:
    before = installed.live.until_frames_flow()
    others = {each: starts(installed, each) for each in ("learner", "actor")}
    installed.live.kill(component)
    after = installed.live.until_frames_flow()  # ``observe`` also checks that no version decreases
    assert {each: starts(installed, each) for each in ("learner", "actor")} == others
    assert after.learner_lineage == before.learner_lineage
    assert after.learner_frames is not None
    assert before.learner_frames is not None
    assert after.learner_frames > before.learner_frames


def test_training_continues_after_the_bandit_is_killed(installed: Installed) -> None:
    before = installed.live.until_frames_flow()
    learners = starts(installed, "learner")
    games = games_of_the_run(installed)
    installed.live.kill("bandit")
    after = installed.live.until_frames_flow()
    assert starts(installed, "learner") == learners
    assert before.learner_frames is not None
    assert after.learner_frames is not None
    assert after.learner_frames > before.learner_frames
    if installed.volumes:
        restored = sum(total(each, names.BANDIT_RESTORED.name) for each in installed.live.component_samples("bandit"))
        assert restored > 0  # its state is on the volume; games after the last snapshot are played again
        installed.live.until(f"more than {games} games", lambda: games_of_the_run(installed), lambda now: now > games)
    installed.live.until("games counted again", lambda: accepted_reports(installed), lambda now: now > 0)


def test_training_continues_after_a_learner_is_killed(installed: Installed) -> None:
    before = installed.live.until(
        "a lineage and a checkpoint",
        installed.live.observe,
        lambda seen: seen.learner_lineage is not None and bool(seen.checkpoint_updates),
    )
    actors = uids(installed, "actor")
    installed.live.kill("learner")
    assert before.learner_lineage is not None
    lineage = before.learner_lineage
    installed.live.until(
        f"a lineage beyond {lineage}",
        installed.live.observe,
        lambda seen: (seen.learner_lineage or 0) > lineage and seen.version is not None,
    )
    after = installed.live.until_frames_flow()
    assert after.version is not None
    assert after.version[0] > lineage
    if installed.volumes:
        assert before.checkpoint_updates is not None
        assert after.version[1] >= before.checkpoint_updates  # it resumed from a checkpoint at least as new
    assert uids(installed, "actor") == actors  # the actors waited and were not restarted


def test_an_upgrade_changes_the_settings_of_the_run(installed: Installed) -> None:
    assert installed.live.observe().learning_rate == pytest.approx(LEARNING_RATE)
    if not installed.volumes:
        installed.live.forget_versions()
    installed.helm.upgrade(installed.settings.values(volumes=installed.volumes, learning_rate=OTHER_LEARNING_RATE))
    installed.live.until_settled()
    installed.live.until("the new rate", installed.live.observe, lambda seen: seen.learning_rate == pytest.approx(OTHER_LEARNING_RATE))
    installed.live.until_frames_flow()


def test_a_rollback_restores_the_settings_of_the_run(installed: Installed) -> None:
    if not installed.volumes:
        installed.live.forget_versions()
    installed.helm.rollback(1)
    installed.live.until_settled()
    installed.live.until("the old rate", installed.live.observe, lambda seen: seen.learning_rate == pytest.approx(LEARNING_RATE))
    installed.live.until_frames_flow()


def test_helm_test_succeeds(installed: Installed) -> None:
    assert "Succeeded" in installed.helm.test()


def test_an_uninstall_removes_everything(installed: Installed) -> None:
    installed.helm.uninstall()
    installed.live.until("no pod", installed.live.pods, lambda pods: not pods)
    installed.live.until("nothing left over", installed.live.leftovers, lambda left: not left)
