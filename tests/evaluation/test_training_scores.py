"""Protocols that use the returns of training, tested on hand-written curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from herd.cli.main import main
from herd.config.loading import dump_settings
from herd.config.run import RunSettings
from herd.evaluation.protocols import EvaluationError, LastEpisodes, LastFrames, training_scores

LAST_100, LAST_MILLION = LastEpisodes(100), LastFrames(1_000_000)


def point(updates: int, **tasks: tuple[int, int, float | None, float]) -> dict[str, Any]:
    """A point of the curve. Values of each task: env frames, episodes, mean of the last hundred returns, sum of all returns."""
    keys = ("env_frames", "episodes", "episode_return_mean_100", "episode_return_sum")
    own = {name: dict(zip(keys, values, strict=True)) for name, values in tasks.items()}
    return {"wall_seconds": updates, "env_frames": sum(values[0] for values in tasks.values()), "learner_updates": updates, "tasks": own}


def run_with(directory: Path, points: list[dict[str, Any]], **env: Any) -> Path:
    directory.mkdir()
    settings = {"name": directory.name, "env": {"tasks": list(points[0]["tasks"]), "action_set": "full", **env}}
    (directory / "config.yaml").write_text(dump_settings(RunSettings.model_validate(settings)))
    (directory / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in points))
    return directory


CURVE = [
    point(10, pong=(400_000, 3, -20.0, -60.0), breakout=(300_000, 40, 2.0, 80.0)),
    point(20, pong=(1_000_000, 10, -15.0, -150.0), breakout=(900_000, 90, 4.0, 360.0)),
    point(30, pong=(1_500_000, 16, -10.0, -180.0), breakout=(1_050_000, 150, 8.0, 1_000.0)),
    point(40, pong=(2_100_000, 22, 1.0, -162.0), breakout=(2_000_000, 250, 16.0, 3_000.0)),
]


def test_the_last_100_games_come_from_the_first_point_with_the_frames(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", CURVE)
    end = training_scores(run, ("pong", "breakout"), LAST_100, None)
    assert [(score.mean, score.episodes, score.env_frames) for score in end.values()] == [(1.0, 22, 2_100_000), (16.0, 100, 2_000_000)]
    # Each task counts its own frames: breakout reaches a million ten updates after pong.
    early = training_scores(run, ("pong", "breakout"), LAST_100, 1_000_000)
    assert [(score.mean, score.learner_updates) for score in early.values()] == [(-15.0, 20), (8.0, 30)]


def test_the_last_million_frames_cover_games_between_two_points(tmp_path: Path) -> None:
    found = training_scores(run_with(tmp_path / "run", CURVE), ("pong", "breakout"), LAST_MILLION, 2_000_000)
    # pong: from 1.0M (the last point at or below 1.1M) to 2.1M; breakout: from 0.9M to 2.0M.
    assert found["pong"][:2] == (pytest.approx((-162.0 + 150.0) / 12), 12)
    assert found["breakout"][:2] == (pytest.approx((3_000.0 - 360.0) / 160), 160)
    whole = training_scores(tmp_path / "run", ("pong",), LAST_MILLION, 1_000_000)
    assert whole["pong"][:2] == (-15.0, 10)  # from the start


def test_points_discarded_by_a_resumed_run_are_ignored(tmp_path: Path) -> None:
    again = [*CURVE[:3], point(25, pong=(1_200_000, 12, -14.0, -160.0)), point(35, pong=(2_200_000, 20, -2.0, -160.0))]
    found = training_scores(run_with(tmp_path / "run", again), ("pong",), LAST_MILLION, None)
    assert found["pong"][:2] == (0.0, 8)


def test_curves_without_the_needed_points_are_refused_in_one_line(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", CURVE)
    silent = run_with(tmp_path / "silent", [point(1, pong=(2_000_000, 0, None, 0.0)), point(2, pong=(4_000_000, 0, None, 0.0))])
    old = run_with(tmp_path / "old", CURVE)
    (old / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text().replace("episode_return_sum", "something"))
    for directory, window, frames, message in (
        (run, LAST_100, 50_000_000, "run: pong was trained for 2,100,000 frames, fewer than 50,000,000"),
        (run, LAST_MILLION, 400_000, "fewer than the window of 1,000,000"),
        (silent, LAST_100, None, "no game of pong had ended by 4,000,000 frames"),
        (silent, LAST_MILLION, None, "no game of pong ended between 2,000,000 and 4,000,000 frames"),
        (old, LAST_MILLION, None, "has no sums of returns"),
        (tmp_path / "absent", LAST_100, None, "cannot read .*metrics.jsonl"),
    ):
        with pytest.raises(EvaluationError, match=message) as caught:
            training_scores(directory, ("pong",), window, frames)
        assert "\n" not in str(caught.value)


def test_seeds_of_one_game_give_a_table_of_training_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sticky = {"sticky_action_probability": 0.25, "noop_max": 0, "life_loss_ends_episode": False}
    runs = [
        str(run_with(tmp_path / f"pong-s{seed}", [point(5, pong=(1_000_000, 10, 2.0 * seed, 10.0 * seed))], **sticky)) for seed in (1, 3)
    ]
    stem = tmp_path / "table"
    assert main(["evaluate", *runs, "--protocol", "dopamine", "--frames", "1000000", "--output", str(stem), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    (task,) = written["tasks"]
    assert (task["run_means"], task["mean"], task["runs"], task["episodes"]) == ([1.0, 3.0], 2.0, 2, 20)
    assert task["mean_interval_95"] == [1.0, 3.0]
    assert written["protocol"]["differs_from_protocol"] == []
    assert written["protocol"]["policy"] == "of training"
    assert main(["evaluate", *runs, "--protocol", "laser-atari", "--output", str(stem)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not as in the paper: env.noop_max 0 (the paper: 37); env.sticky_action_probability 0.25 (the paper: 0.0)" in said
    assert main(["evaluate", runs[0], "--protocol", "laser-atari", "--output", str(stem), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"][0]["mean_interval_95"] is None  # one value says nothing about the spread
