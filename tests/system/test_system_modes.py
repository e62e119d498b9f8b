"""Every mode that the settings offer, each as a short run of real processes on Catch."""

from __future__ import annotations

from pathlib import Path

import pytest

from herd.run.checkpoints import newest_checkpoint
from herd.run.tensors import load_checkpoint
from tests.system.whole_runs import train

REPLAY = ("--replay.kind", "uniform", "--replay.minimum_fill_unrolls", "16")
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
    learning = ("--learner.weights_dtype", "bfloat16", "--stop.env_frames", "400000", "--optimizer.schedule", "constant")
    report = train(tmp_path / "run", *words, *learning)
    # The instruction flips the reward's sign in half of the games, so an agent that ignores it gets 0: five standard errors less.
    assert report["tasks"]["catch_instructed"]["episode_return"]["mean_last_100"] > 0.5
    checkpoint = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    model = load_checkpoint(checkpoint).tensors["model"]
    # weights are published in bfloat16, but trained in float32
    assert {str(tensor.dtype) for tensor in model.values()} == {"torch.float32"}
