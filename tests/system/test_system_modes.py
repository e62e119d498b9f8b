"""Every mode that the settings offer, each as a short run of real processes on Catch: lockstep, credit, compression, replay, evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from herd.run.checkpoints import newest_checkpoint
from herd.run.tensors import load_checkpoint
from herd.view.plots.curves import evaluation_curves
from herd.view.plots.history import read_run
from tests.system.whole_runs import CATCH, Run, herd, read_points, read_report, train

REPLAY = ("--replay.kind", "local", "--replay.minimum_fill_unrolls", "16")
SHORT = ("--stop.env_frames", "20000")


def test_lockstep_is_batched_a2c(tmp_path: Path) -> None:
    report = train(tmp_path / "run", *SHORT, "--actor.lockstep", "true", "--actor.count", "2", "--actor.environments", "16")
    assert report["policy_lag"] == {"mean": 0.0, "max": 0}
    assert report["accounting"]["dropped"] == {}


def test_the_next_batch_is_prepared_ahead(tmp_path: Path) -> None:
    words = ("--learner.work_ahead", "on", *REPLAY, "--replay.fraction", "0.25", "--learner.sample_reuse", "2")
    report = train(tmp_path / "run", "--stop.env_frames", "40000", *words, "--actor.environments", "24")
    accounting = report["accounting"]
    assert accounting["generated"] == accounting["consumed"] + accounting["in_flight"]
    # Prepared batches are trained on: at the end, no more is in flight than the credit and one batch.
    assert accounting["in_flight"] <= 3 * 32 * 20
    assert accounting["dropped"] == {}
    assert report["env_frames"] == accounting["consumed"]
    # Every batch of 24 fresh unrolls is used twice, and none is skipped.
    assert report["env_frames"] == pytest.approx(report["learner_updates"] / 2 * 24 * 20 * 0.9, rel=0.03)


def test_credit_before_the_unroll_bounds_policy_lag(tmp_path: Path) -> None:
    words = ("--actor.credit", "before_unroll", "--learner.max_policy_lag", "3", "--learner.batch_size", "16")
    report = train(tmp_path / "run", *SHORT, *words, "--actor.count", "1", "--actor.environments", "16")
    assert 0 < report["policy_lag"]["max"] <= 3
    # Credit enforces the bound, rather than dropping: an unroll is dropped only if its weights were late by a whole update.
    assert set(report["accounting"]["dropped"]) <= {"stale"}
    assert report["accounting"]["dropped"].get("stale", 0) <= 0.05 * report["accounting"]["generated"]


def test_an_instruction_is_learned_with_zstd_and_bfloat16_weights(tmp_path: Path) -> None:
    words = ("--env.tasks", "catch_instructed", "--network.language", "true", "--actor.compression", "zstd")
    learning = ("--learner.weights_dtype", "bfloat16", "--learner.log_interval_seconds", "0.5", "--optimizer.schedule", "constant")
    with Run(tmp_path / "run", *words, *learning, "--env.step_seconds", "0") as run:
        # The instruction flips the reward's sign in half of the games, so an agent that ignores it gets 0: five standard errors less.
        run.until(lambda: any((point["episode_return_mean_100"] or 0) > 0.5 for point in read_points(run.run_dir)), "it to be learned")
        assert run.stop() == 0, run.output
    checkpoint = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    model = load_checkpoint(checkpoint).tensors["model"]
    # weights are published in bfloat16, but trained in float32
    assert {str(tensor.dtype) for tensor in model.values()} == {"torch.float32"}


SHARED_REPLAY = (
    *("--replay.kind", "shared", "--replay.fraction", "0.5", "--replay.minimum_fill_agent_steps", "2000"),
    *("--learner.queue_batches", "9", "--learner.threads", "1", "--loss.trust_region", "implied"),
)
RECURRENT = ("--network.core", "lstm", "--network.core.size", "16")


def test_agents_of_a_sweep_and_their_shards_share_the_replicas_of_one_replay(tmp_path: Path) -> None:
    sweep = json.dumps({"optimizer.learning_rate": [2e-3, 1e-3]})
    words = ("--agents", "2", "--sweep", sweep, "--learner.shards", "2", "--replay_service.replicas", "2", *SHORT)
    run_dir = tmp_path / "run"
    done = herd("train", CATCH, "--run_dir", run_dir, *SHARED_REPLAY, *RECURRENT, *words)
    assert done.returncode == 0, done.stderr + done.stdout
    reports = [read_report(run_dir / "agents" / str(agent)) for agent in (0, 1)]
    assert [report["sweep"] for report in reports] == [{"optimizer.learning_rate": 2e-3}, {"optimizer.learning_rate": 1e-3}]
    for agent, report in enumerate(reports):
        replay = report["replay"]
        assert 0.1 < replay["fraction"] <= 0.5
        assert replay["staleness"]["max"] > 0
        assert report["accounting"]["dropped"] == {}
        points = (run_dir / "agents" / str(agent) / "metrics.jsonl").read_text().splitlines()
        last = json.loads(points[-1])
        assert {"kl_online", "kl_replayed", "mean_rho_online", "mean_rho_replayed", "rejected_share_replayed"} <= set(last)
        assert last["learning_rate"] <= reports[agent]["sweep"]["optimizer.learning_rate"]


def test_a_run_is_evaluated_during_training_and_at_the_end(tmp_path: Path) -> None:
    run_dir = tmp_path / "catch"
    # The evaluator may start late on a busy machine: the last version is evaluated in any case.
    words = ("--evaluation.interval_seconds", "0.5", "--evaluation.episodes", "10", "--evaluation.final", "true")
    report = train(run_dir, "--stop.env_frames", "30000", *words)
    points = [json.loads(line) for line in (run_dir / "evaluation.jsonl").read_text().splitlines()]
    updates = [point["learner_updates"] for point in points]
    assert updates == sorted(set(updates))  # no version is evaluated twice
    last = points[-1]
    assert (last["learner_updates"], last["env_frames"], last["lineage"]) == (report["learner_updates"], report["env_frames"], 1)
    assert last["tasks"]["catch"]["episodes"] == 10
    assert "Traceback" not in (run_dir / "logs" / "evaluator-final.log").read_text()
    assert "Traceback" not in (run_dir / "logs" / "evaluator-0.log").read_text()
    assert herd("plot", run_dir, "--output", tmp_path / "curve.svg").returncode == 0
    assert "evaluation of frozen weights" in (tmp_path / "curve.svg").read_text()
    drawn = evaluation_curves(read_run(run_dir), "env_frames")["catch"]
    assert drawn.x[-1] == report["env_frames"]
    assert len(drawn.x) == len(points)
