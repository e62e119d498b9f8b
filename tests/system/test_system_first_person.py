"""Environments in separate processes in real runs: ViZDoom, and the stand-in for DeepMind Lab (tests/envs/stand_in)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system.whole_runs import ROOT, herd, train

STAND_IN = ROOT / "tests" / "envs" / "stand_in"
SMALL = ("--network.core.size", "16", "--network.torso", "shallow", "--env.frame_height", "40", "--env.frame_width", "40")


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the stand-in importable for `herd`."""
    monkeypatch.setattr("tests.system.whole_runs.ROOT", os.pathsep.join([str(ROOT), str(STAND_IN)]))


def test_vizdoom_can_be_trained_evaluated_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    report = train(
        tmp_path / "run",
        *("--env.tasks", "basic,predict_position", "--actor.environments", "2", "--actor.environment_threads", "2"),
        *("--algorithm.unroll_length", "20", "--learner.batch_size", "2", "--stop.env_frames", "4000", *SMALL),
        file="doom-multitask",
    )
    assert {task: counted["episode_return"]["episodes"] > 0 for task, counted in report["tasks"].items()} == {
        "basic": True,
        "predict_position": True,
    }
    assert report["tasks"]["basic"]["episode_return"]["mean_last_100"] < 0 < report["tasks"]["basic"]["env_frames"]
    evaluated = herd("evaluate", tmp_path / "run", "--episodes", "2", "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    watched = herd("watch", tmp_path / "run", "--output", tmp_path / "game.gif", "--max_seconds", "2", "--task", "predict_position")
    assert watched.returncode == 0, watched.stderr
    assert (tmp_path / "game.gif").stat().st_size > 10_000
    assert [path for path in folder.iterdir() if path.name.startswith("herd-")] == []


def test_dmlab_trains_with_instructions_popart_and_pixel_control(tmp_path: Path, lab: None) -> None:
    words: list[str | Path] = [
        *("--env.tasks", "language_execute_random_task,explore_goal_locations_small", "--env.level_cache", tmp_path / "maps"),
        *("--env.level_seeds", "5", "--actor.environments", "2", "--actor.environment_threads", "2", "--algorithm.unroll_length", "10"),
        *("--learner.batch_size", "2", "--learner.threads", "1", "--stop.env_frames", "4000", *SMALL),
    ]
    done = herd("train", "popart-dmlab30-pixelcontrol", "--run_dir", tmp_path / "run", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    maps = [path for path in (tmp_path / "maps").rglob("*") if path.is_file()]
    assert 1 <= len(maps) <= 5
    held_out = ("--env.hold_out", "true", "--episodes", "2", "--output", tmp_path / "held-out")
    evaluated = herd("evaluate", tmp_path / "run", *held_out)
    assert evaluated.returncode == 0, evaluated.stderr
    assert "of human" in evaluated.stdout
