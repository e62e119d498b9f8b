"""One real Breakout run through all processes, followed by every command that reads its files."""

from __future__ import annotations

import json
from pathlib import Path

from herd.view.plots.history import read_run
from tests.system.whole_runs import herd, read_points, train


def test_breakout_is_trained_and_all_commands_read_its_files(tmp_path: Path) -> None:
    run_dir = tmp_path / "breakout"
    words = ("--actor.count", "1", "--actor.environments", "8", "--learner.batch_size", "8", "--learner.log_interval_seconds", "1")
    report = train(run_dir, "--stop.env_frames", "10000", *words, file="experiments/breakout.yaml")
    assert report["env_frames"] == 4 * report["agent_steps"]  # frames are counted in the emulator
    assert 10_000 <= report["env_frames"] < 10_000 + 8 * 20 * 4
    assert report["accounting"]["dropped"] == {}
    assert report["frames_per_second"] > 0
    points = read_points(run_dir)
    assert points[-1]["env_frames"] == report["env_frames"]
    assert all(point["gradient_norm"] is not None for point in points if point["learner_updates"])

    evaluated = herd("evaluate", run_dir, "--episodes", "2", "--env.max_episode_frames", "1200", "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    scores = json.loads(evaluated.stdout)
    assert scores == json.loads((run_dir / f"evaluation-{report['learner_updates']}.json").read_text())
    (task,) = scores["tasks"]
    assert (task["task_name"], task["episodes"], len(task["episode_returns"][0])) == ("breakout", 2, 2)
    assert task["mean_env_frames"] <= 1200
    assert scores["runs"][0]["env_frames"] == report["env_frames"]
    assert scores["protocol"]["differs_from_training"] == ["max_episode_frames"]
    # Without a terminal, stdout contains only the table, and the files are named last.
    spoken = herd("evaluate", run_dir, "--episodes", "1", "--env.max_episode_frames", "400", "--output", tmp_path / "short")
    assert spoken.stdout.split()[-2:] == [str(tmp_path / "short.json"), str(tmp_path / "short.csv")]

    curve = tmp_path / "curve.svg"
    plotted = herd("plot", run_dir, "--output", curve)
    assert plotted.returncode == 0, plotted.stderr
    assert "<svg" in curve.read_text()
    assert len(read_run(run_dir).env_frames) > 0

    watched = herd("watch", run_dir, "--max_seconds", "3")
    assert watched.returncode == 0, watched.stderr
    video = (run_dir / "episode.gif").read_bytes()
    assert video[:6] == b"GIF89a"
    assert len(video) > 10_000

    status = herd("status", run_dir, "--json")
    (run,) = json.loads(status.stdout)
    assert set(run["processes"]) == {"actor-0", "learner-0", "paramserver-0"}
    assert (run["running"], run["env_frames"], int(run["checkpoint"])) == (False, report["env_frames"], report["learner_updates"])


def test_one_agent_trains_on_three_games_evenly(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    words = ("--actor.count", "1", "--actor.environments", "6", "--learner.batch_size", "8", "--learner.log_interval_seconds", "1")
    report = train(run_dir, "--stop.env_frames", "6000", *words, file="experiments/atari-3games-quick.yaml")
    assert list(report["tasks"]) == ["krull", "kung_fu_master", "up_n_down"]
    frames = [task["env_frames"] for task in report["tasks"].values()]
    # The last message, with two unrolls of each game, may be partly consumed. The 1 % of steps or more that start games do not count.
    assert max(frames) - min(frames) <= 2 * 20 * 4 + 0.02 * max(frames)
    assert report["task_frames_spread"] == (max(frames) - min(frames)) * 3 / sum(frames)
    assert all("human_normalised" in task for task in report["tasks"].values())
    plotted = herd("plot", run_dir, "--output", tmp_path / "curve.svg")
    assert plotted.returncode == 0, plotted.stderr
    assert all(panel in (tmp_path / "curve.svg").read_text() for panel in ("krull", "kung fu master", "up n down", "throughput"))
