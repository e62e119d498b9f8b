"""A population of two on a real cluster (``CLUSTER_RUN=population``). The tests depend on their order."""

from __future__ import annotations

import json

import pytest

from herd.telemetry import metric_names as names
from herd.telemetry.scrape import total
from tests.cluster.agents_growth import until_grown
from tests.cluster.cluster_settings import ACTORS, AGENTS
from tests.cluster.conftest import Installed
from tests.cluster.herd_command import herd

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3_600)]


def decisions(installed: Installed) -> float:
    """Number of decisions since the controller started."""
    return sum(total(each, names.POPULATION_DECISIONS.name) for each in installed.live.component_samples("population"))


def until_members_learn(installed: Installed) -> None:
    until_grown(installed, names.LEARNER_ENV_FRAMES.name)


def test_all_members_and_actors_become_ready(installed: Installed) -> None:
    installed.live.until_settled()
    counted = {component: len(installed.live.lasting(component)) for component in installed.settings.pods()}
    assert counted == installed.settings.pods()
    places = {(pod.agent, pod.rank) for pod in installed.live.pods("learner")}
    assert places == {(agent, rank) for agent in range(AGENTS) for rank in range(installed.settings.shards)}


def test_members_learn_and_are_compared(installed: Installed) -> None:
    until_members_learn(installed)
    installed.live.until("a decision", lambda: decisions(installed), lambda found: found > 0)


def test_status_has_a_line_for_each_member(installed: Installed) -> None:
    said = json.loads(herd(installed, "status", "--seconds", "5", "--json"))
    assert said["notes"] == []
    assert said["actors_asked"] == ACTORS
    assert len(said["agents"]) == AGENTS
    assert all(each["learner_updates"] > 0 for each in said["agents"])
    assert [each["agent"] for each in said["members"]] == list(range(AGENTS))
    assert all(each["fitness"] is not None and "loss.entropy_cost" in each["settings"] for each in said["members"])


def test_members_continue_after_the_controller_is_killed(installed: Installed) -> None:
    """The members continue meanwhile. The new controller restores its state from the journal and their reports, and decides again."""
    learners = {(pod.uid, pod.restarts) for pod in installed.live.lasting("learner")}
    installed.live.kill("population")
    until_members_learn(installed)
    installed.live.until("decisions of the new controller", lambda: decisions(installed), lambda found: found > 0)
    assert {(pod.uid, pod.restarts) for pod in installed.live.lasting("learner")} == learners
    [samples] = installed.live.component_samples("population")
    assert total(samples, names.POPULATION_REPORTS.name, outcome="refused") == 0


def test_members_continue_after_one_is_killed(installed: Installed) -> None:
    others = {pod.uid for pod in installed.live.lasting("learner") if pod.agent != 0}
    installed.live.kill("learner")
    until_members_learn(installed)
    assert {pod.uid for pod in installed.live.lasting("learner") if pod.agent != 0} == others


def test_helm_test_succeeds(installed: Installed) -> None:
    assert "Succeeded" in installed.helm.test()


def test_an_uninstall_removes_everything_but_the_claim(installed: Installed) -> None:
    installed.helm.uninstall()
    installed.live.until("no pod", installed.live.pods, lambda pods: not pods)
    installed.live.until("nothing left over", installed.live.leftovers, lambda left: not left)
