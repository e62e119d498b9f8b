"""`experiments/catch.yaml` as shipped, as a whole system: separate processes, loopback sockets, checkpoint and evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.whole_runs import CATCH, herd, read_report

NUM_EVALUATION_EPISODES = 200


@pytest.mark.filterwarnings("ignore")  # TensorBoard's reader warns
@pytest.mark.learning
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_catch_is_learned_through_separate_processes(tmp_path: Path, seed: int) -> None:
    run_dir = tmp_path / "catch"
    trained = herd("train", CATCH, "--seed", str(seed), "--run_dir", run_dir, "--logging.tensorboard")
    assert trained.returncode == 0, trained.stderr + trained.stdout
    report = read_report(run_dir)
    assert report["env_frames"] >= 400_000
    assert all((run_dir / name).stat().st_size > 0 for name in ("curve.png", "learning.png"))
    # The curve starts before anything is learned: random play returns about -0.6.
    curve = [point["episode_return_mean_100"] for point in map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())]
    assert next(value for value in curve if value is not None) < 0.0

    # TensorBoard has the same points, including the last one.
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415  warns as it loads

    reader = EventAccumulator(str(run_dir / "tensorboard")).Reload()
    frames = [json.loads(line)["env_frames"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [event.step for event in reader.Scalars("run/env_frames")] == frames

    evaluated = herd("evaluate", run_dir, "--episodes", str(NUM_EVALUATION_EPISODES), "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    (task,) = json.loads(evaluated.stdout)["tasks"]
    assert (task["task_name"], task["episodes"]) == ("catch", NUM_EVALUATION_EPISODES)
    assert task["mean"] >= 0.95
    # The evaluation of a checkpoint agrees with the returns of training: 100 games there, 200 here.
    assert abs(task["mean"] - report["tasks"]["catch"]["episode_return"]["mean_last_100"]) <= 0.1
