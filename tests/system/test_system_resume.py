"""A run that is stopped can be resumed, and counts as one run."""

from __future__ import annotations

import signal
from pathlib import Path

from herd.run.checkpoints import newest_checkpoint
from herd.run.tensors import load_checkpoint
from tests.system.whole_runs import Run, herd, lineage_of, pid_of, read_points, read_report

GROWING = ("wall_seconds", "env_frames", "agent_steps", "learner_updates", "episodes")


def test_a_resumed_run_continues_its_counters_and_curve(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"

    def has_learned() -> bool:
        points = read_points(run_dir)
        return len(points) >= 4 and points[-1]["episodes"] > 0

    with Run(run_dir, "--learner.log_interval_seconds", "0.5", "--env.reward_scales", "1,1000") as run:
        run.until(has_learned, "a learning curve")
        assert run.stop(signal.SIGINT) == 0, run.output
        assert "ended (" not in run.output  # no process had to be killed or restarted
    before, points_before, lineage_before = read_report(run_dir), read_points(run_dir), lineage_of(run_dir)
    checkpoint = newest_checkpoint(run_dir / "checkpoints")
    assert checkpoint is not None
    state = load_checkpoint(checkpoint).state
    assert checkpoint.name == f"{before['learner_updates']:012d}"
    # The checkpoint, the report and the last point of the curve belong to the same moment.
    assert (state["statistics"]["env_frames"], state["ledger"]["consumed"]) == (before["env_frames"], before["env_frames"])
    assert points_before[-1]["env_frames"] == before["env_frames"]
    by_task = {name: task["env_frames"] for name, task in before["tasks"].items()}
    assert {name: task["env_frames"] for name, task in state["statistics"]["tasks"].items()} == by_task
    assert [frames["consumed"] for _, frames in state["ledger"]["tasks"]] == list(by_task.values())
    old_pid = pid_of(run_dir, "learner-0")

    more = before["env_frames"] + 30_000
    done = herd("train", "--resume", "--run_dir", run_dir, "--stop.env_frames", str(more), "--learner.threads", "1")
    assert done.returncode == 0, done.stderr + done.stdout
    assert pid_of(run_dir, "learner-0") != old_pid
    after, points = read_report(run_dir), read_points(run_dir)
    assert points[: len(points_before)] == points_before
    assert len(points) > len(points_before)
    for name in GROWING:
        values = [point[name] for point in points]
        assert values == sorted(values), name
        assert values[len(points_before)] >= values[len(points_before) - 1] > 0
    # The run resumes from the checkpoint, not from 0, and does not go far beyond the requested frames.
    updates = after["learner_updates"] - before["learner_updates"]
    assert 30_000 <= after["env_frames"] - before["env_frames"] <= updates * 32 * 20
    assert after["env_frames"] < more + 32 * 20
    assert after["wall_seconds"] > before["wall_seconds"]
    assert after["episode_return"]["episodes"] > before["episode_return"]["episodes"]
    # Frames that arrived before the checkpoint and were not trained on are accounted for; the report stated their number.
    assert before["accounting"]["in_flight"] == state["ledger"]["in_flight"]
    assert after["accounting"]["dropped"].get("learner_restart", 0) == state["ledger"]["in_flight"]
    assert after["accounting"]["generated"] > state["ledger"]["generated"]
    for (_, saved), task in zip(state["ledger"]["tasks"], after["tasks"].values(), strict=True):
        assert task["accounting"]["dropped"].get("learner_restart", 0) == saved["in_flight"]
        assert task["env_frames"] > saved["consumed"]
    assert lineage_of(run_dir) == lineage_before + 1
    assert load_checkpoint(run_dir / "checkpoints" / f"{after['learner_updates']:012d}").state["lineage"] == lineage_before + 1
    # `resume` applied only to that start; the extended stop condition is now part of the run.
    config = (run_dir / "config.yaml").read_text()
    assert "resume: true" not in config
    assert f"env_frames: {more}" in config
