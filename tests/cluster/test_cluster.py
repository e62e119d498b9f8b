"""The life of a release on a real cluster. The tests depend on their order: each continues from the state that the previous one left.

Run ``make test-cluster`` with KUBECONFIG set.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from herd.protocols.bandit import metrics as bandit_metrics
from herd.protocols.population import metrics as population_metrics
from herd.protocols.replay import metrics as replay_metrics
from herd.protocols.unrolls import metrics as unroll_metrics
from herd.telemetry import training as training_metrics
from tests.cluster.cluster_settings import ACTORS, AGENTS, LEARNING_RATE, OTHER_LEARNING_RATE, REPOSITORY
from tests.cluster.live_release import NAME, HelmError, LiveRelease

# A cluster may take long to pull images; each wait has its own, shorter time-out (CLUSTER_TIMEOUT_SECONDS).
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3_600)]


def learning_rates(live: LiveRelease) -> set[float]:
    return {round(rate / live.settings.shards, 6) for rate in live.sums("learner", training_metrics.LEARNING_RATE.name).values()}


def test_every_component_becomes_ready(live: LiveRelease) -> None:
    live.until_settled()
    assert dict(live.cluster.replicas(NAME)) == live.settings.pods()
    agents = 1 if live.settings.run == "dice" else AGENTS
    places = {(pod.agent, pod.rank) for pod in live.pods("learner")}
    assert places == {(agent, rank) for agent in range(agents) for rank in range(live.settings.shards)}


def test_every_agent_learns_and_every_service_works(live: LiveRelease) -> None:
    live.until_training()
    live.until(
        "a checkpoint", lambda: live.sums("learner", training_metrics.CHECKPOINT_UPDATES.name), lambda found: min(found.values()) > 0
    )
    component, metric = {
        "dice": ("bandit", bandit_metrics.BANDIT_REPORTS.name),
        "agents": ("replay", replay_metrics.REPLAY_INSERTED_EPISODES.name),
        "population": ("population", population_metrics.POPULATION_DECISIONS.name),
    }[live.settings.run]
    live.until_grown(component, metric)
    if live.settings.run == "agents":
        live.until_grown("learner", unroll_metrics.UNROLLS_REPLAYED.name)


def test_status_shows_the_release(live: LiveRelease) -> None:
    command = [sys.executable, "-m", "herd.cli.main", "status", "--release", NAME, "--namespace", live.cluster.namespace, "--json"]
    command += ["--context", live.settings.context] if live.settings.context else []
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=live.settings.timeout_seconds, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["notes"] == []
    assert {name: row["ready"] for name, row in said["components"].items()} == live.settings.pods()
    assert said["frames_per_second"] > 0
    assert said["learner_updates"] > 0
    assert len(said["agents"]) == (0 if live.settings.run == "dice" else AGENTS)


def test_the_number_of_actors_can_be_scaled(live: LiveRelease) -> None:
    for number in (ACTORS + 2, ACTORS):
        live.scale(number)
    live.until_training()


@pytest.mark.parametrize("component", ["actor", "paramserver", "paramserver-replica", "bandit", "replay", "evaluator", "population"])
def test_training_continues_after_a_pod_is_killed(live: LiveRelease, component: str) -> None:
    live.until_training()
    learners = live.starts("learner")
    live.kill(component)
    live.until_training()
    assert live.starts("learner") == learners


def test_training_continues_after_a_learner_is_killed(live: LiveRelease) -> None:
    actors = live.starts("actor")
    others = {pod.uid for pod in live.pods("learner") if pod.agent != 0}
    checkpoint = max(live.sums("learner", training_metrics.CHECKPOINT_UPDATES.name).values())
    lineage, _ = live.version() if live.settings.run == "dice" else (0.0, 0.0)
    live.kill("learner")
    live.until_training()
    assert live.starts("actor") == actors  # the actors waited and were not restarted
    assert {pod.uid for pod in live.pods("learner") if pod.agent != 0} == others
    if live.settings.run == "dice":
        new_lineage, updates = live.version()
        assert new_lineage > lineage
        if live.volumes and live.settings.shards == 1:
            assert updates >= checkpoint  # it resumed from a checkpoint at least as new


def test_an_upgrade_and_a_rollback_change_the_settings_of_the_run(live: LiveRelease) -> None:
    live.helm("upgrade", values=live.settings.values(volumes=live.volumes, learning_rate=OTHER_LEARNING_RATE))
    live.until("the new rate", lambda: learning_rates(live), lambda rates: rates == {OTHER_LEARNING_RATE})
    live.until_training()
    live.helm("rollback", "1")
    live.until("the old rate", lambda: learning_rates(live), lambda rates: rates == {LEARNING_RATE})
    live.until_training()


def test_helm_test_succeeds_and_names_the_cause_of_a_failure(live: LiveRelease) -> None:
    assert "Succeeded" in live.helm("test")
    values = live.settings.values(volumes=live.volumes)
    live.helm("upgrade", values={**values, "selfTest": {"timeoutSeconds": 20}})
    live.scale(0)
    with pytest.raises(HelmError):
        live.helm("test")
    assert "the learner trains on no frames" in live.last_lines(f"{NAME}-test")
    live.delete(f"{NAME}-test", 0)  # a failed test pod is kept for its log, even after an uninstall


def test_an_uninstall_removes_everything(live: LiveRelease) -> None:
    live.helm("uninstall")
    live.until("nothing left over", live.leftovers, lambda left: not left)
