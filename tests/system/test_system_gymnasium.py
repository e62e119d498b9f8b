"""Environments of gymnasium and of other packages in real processes, and the mistakes that `herd train` refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system.whole_runs import ROOT, herd, train

RANDOM_MINIGRID = 0.3
"""Above the mean return of random play over 100 games, 0.18."""


def test_cartpole_trains_and_can_be_recorded(tmp_path: Path) -> None:
    """tests/learner/test_learner_vectors.py tests that the agent learns from vectors."""
    report = train(tmp_path / "run", "--stop.env_frames", "8000", file="cartpole")
    assert list(report["tasks"]) == ["CartPole-v1"]
    watched = herd("watch", tmp_path / "run", "--output", tmp_path / "game.gif", "--max_seconds", "2")
    assert watched.returncode == 0, watched.stderr
    assert (tmp_path / "game.gif").stat().st_size > 10_000


def test_minigrid_trains(tmp_path: Path) -> None:
    report = train(tmp_path / "run", "--stop.env_frames", "5000", file="minigrid-empty")
    [(task, counted)] = report["tasks"].items()
    assert (task, counted["env_frames"] >= 5_000) == ("minigrid:MiniGrid-Empty-5x5-v0", True)
    # Games end after 100 steps; the return of a game that reaches the goal is at most 1.
    assert counted["episode_return"]["episodes"] > 5_000 / 100 / 2
    assert 0.0 <= counted["episode_return"]["mean_last_100"] < 1.0


@pytest.mark.learning
@pytest.mark.timeout(1800)
def test_minigrid_is_learned(tmp_path: Path) -> None:
    report = train(tmp_path / "run", file="minigrid-empty")
    [counted] = report["tasks"].values()
    assert counted["episode_return"]["mean_last_100"] > 2 * RANDOM_MINIGRID


def test_images_vectors_and_instructions_train_a_recurrent_network(tmp_path: Path) -> None:
    report = train(
        tmp_path / "run",
        *("--env.vector_keys", "direction", "--env.image_key", "image", "--env.instruction_key", "mission", "--env.frame_stack", "2"),
        *("--network.core", "lstm", "--network.core.size", "32", "--network.language", "--network.last_action_and_reward"),
        *("--env.vectorization", "async", "--actor.environments", "2", "--actor.environment_threads", "2", "--learner.batch_size", "4"),
        *("--stop.env_frames", "2000", "--algorithm.burn_in", "5"),
        *("--replay.kind", "uniform", "--replay.fraction", "0.5", "--replay.minimum_fill_unrolls", "16"),
        file="minigrid-empty",
    )
    assert report["env_frames"] >= 2000


def test_a_suite_of_another_package_can_be_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.system.whole_runs.ROOT", os.pathsep.join([str(ROOT), str(ROOT / "tests" / "extension_package")]))
    file = tmp_path / "corridor.yaml"
    file.write_text("env: {suite: corridor, length: 5}\nnetwork: {torso: mlp}\nactor: {count: 1}\n")
    done = herd("train", file, "--stop.env_frames", "5000", "--run_dir", tmp_path / "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    evaluated = herd("evaluate", tmp_path / "run", "--episodes", "4", folder=tmp_path)
    assert evaluated.returncode == 0, evaluated.stderr
    assert "of human" in evaluated.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cartpole", "--env.tasks", "Pendulum-v1"], "env.tasks Pendulum-v1: its actions are Box"),
        (["cartpole", "--env.tasks", "mine:make"], "env.tasks mine:make: module mine is neither in"),
        (["cartpole", "--network.torso", "shallow"], "network.torso shallow needs frames, but these observations have none: use mlp"),
        (["cartpole", "--network.torso", "mine:Torso"], "network.torso mine:Torso: module mine is neither in"),
        (["cartpole", "--network.torso", "shalow"], "network.torso.kind: should be shallow, nature, deep, mlp or custom"),
        (
            ["minigrid-empty", "--env.image_key", "image", "--network.torso", "deep", "--env.vector_keys", "mission"],
            "cannot be converted to a vector",
        ),
    ],
)
def test_unsupported_environments_are_refused_at_the_start(tmp_path: Path, words: list[str], said: str) -> None:
    done = herd("train", *words, "--run_dir", tmp_path / "run")
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()
    assert said in line
    assert not (tmp_path / "run").exists()
