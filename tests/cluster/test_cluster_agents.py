"""Two agents that share replay, with an evaluator, on a real cluster (``CLUSTER_RUN=agents``). The tests depend on their order."""

from __future__ import annotations

import json

import pytest

from herd.telemetry import metric_names as names
from herd.telemetry.scrape import total
from tests.cluster.agents_growth import until_grown
from tests.cluster.cluster_settings import ACTORS, AGENTS
from tests.cluster.conftest import Installed
from tests.cluster.helm_release import HelmError
from tests.cluster.herd_command import herd
from tests.cluster.live_trouble import last_lines

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3_600)]


def kept_episodes(installed: Installed) -> float:
    return sum(total(each, names.REPLAY_INSERTED_EPISODES.name) for each in installed.live.component_samples("replay"))


def until_all_learn(installed: Installed) -> None:
    """Wait until every agent has trained on more frames, including replayed ones."""
    for metric in (names.LEARNER_ENV_FRAMES.name, names.UNROLLS_REPLAYED.name):
        until_grown(installed, metric)


def test_every_component_becomes_ready(installed: Installed) -> None:
    installed.live.until_settled()
    counted = {component: len(installed.live.lasting(component)) for component in installed.settings.pods()}
    assert counted == installed.settings.pods()
    places = {(pod.agent, pod.rank) for pod in installed.live.pods("learner")}
    assert places == {(agent, rank) for agent in range(AGENTS) for rank in range(installed.settings.shards)}


def test_both_agents_learn_from_shared_replay(installed: Installed) -> None:
    installed.live.until("episodes in replay", lambda: kept_episodes(installed), lambda kept: kept > 0)
    until_all_learn(installed)


def test_status_shows_all_components(installed: Installed) -> None:
    said = json.loads(herd(installed, "status", "--seconds", "5", "--json"))
    assert said["notes"] == []
    assert {name: row["ready"] for name, row in said["components"].items()} == installed.settings.pods()
    assert said["frames_per_second"] > 0
    assert {pod["agent"] for pod in said["pods"] if pod["component"] == "learner"} == set(range(AGENTS))
    assert said["actors_asked"] == ACTORS


def test_training_continues_after_replay_is_killed(installed: Installed) -> None:
    learners = {(pod.uid, pod.restarts) for pod in installed.live.lasting("learner")}
    installed.live.kill("replay")
    until_all_learn(installed)
    assert {(pod.uid, pod.restarts) for pod in installed.live.lasting("learner")} == learners


def test_training_continues_after_a_learner_is_killed(installed: Installed) -> None:
    others = {pod.uid for pod in installed.live.lasting("learner") if pod.agent != 0}
    installed.live.kill("learner")
    until_all_learn(installed)
    assert {pod.uid for pod in installed.live.lasting("learner") if pod.agent != 0} == others


def test_training_continues_after_the_evaluator_is_killed(installed: Installed) -> None:
    installed.live.kill("evaluator")
    until_all_learn(installed)


def test_a_failing_self_test_names_the_cause(installed: Installed) -> None:
    """Without actors the learners have nothing to train on."""
    values = installed.settings.values(volumes=installed.volumes)
    values["selfTest"] = {"timeoutSeconds": 20}
    installed.helm.upgrade(values)
    installed.live.scale("actor", 0)
    installed.live.until("no actor", lambda: installed.live.pods("actor"), lambda pods: not pods)
    with pytest.raises(HelmError):
        installed.helm.test()
    assert "the learner trains on no frames" in "\n".join(last_lines(installed.live.cluster, f"{installed.helm.name}-test"))
    installed.live.delete(f"{installed.helm.name}-test", 0)  # a failed test pod is kept for its log, even after an uninstall
    installed.live.scale("actor", ACTORS)
    installed.live.until_settled()
    installed.helm.upgrade(installed.settings.values(volumes=installed.volumes))


def test_helm_test_succeeds(installed: Installed) -> None:
    assert "Succeeded" in installed.helm.test()


def test_an_uninstall_removes_everything(installed: Installed) -> None:
    installed.helm.uninstall()
    installed.live.until("no pod", installed.live.pods, lambda pods: not pods)
    installed.live.until("nothing left over", installed.live.leftovers, lambda left: not left)
