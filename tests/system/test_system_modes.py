"""Every mode that the settings offer, each as a short run of real processes on Catch."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from herd.run.checkpoints.store import newest_checkpoint
from herd.run.tensors import load_checkpoint
from herd.telemetry.scrape import total
from tests.system.whole_runs import CATCH, RANDOM_CATCH, Process, free_ports, metrics, pid_of, read_report, train, until

LEARNING = ("--stop.env_frames", "120000", "--optimizer.schedule", "constant")
REPLAY = ("--replay.kind", "uniform", "--replay.minimum_fill_unrolls", "16")
SHORT = ("--stop.env_frames", "20000")


def test_lockstep_is_batched_a2c(tmp_path: Path) -> None:
    report = train(tmp_path / "run", *SHORT, "--actor.lockstep", "true", "--actor.count", "2", "--actor.environments", "16")
    assert report["policy_lag"] == {"mean": 0.0, "max": 0}
    assert report["accounting"]["dropped"] == {}


def test_the_next_batch_is_prepared_ahead(tmp_path: Path) -> None:
    words = ("--learner.work_ahead", "on", *REPLAY, "--replay.fraction", "0.25", "--learner.sample_reuse", "2")
    report = train(tmp_path / "run", *LEARNING, *words, "--actor.environments", "24")
    accounting = report["accounting"]
    assert accounting["generated"] == accounting["consumed"] + accounting["in_flight"]
    # Prepared batches are trained on: at the end, no more is in flight than the credit and one batch.
    assert accounting["in_flight"] <= 3 * 32 * 20
    assert accounting["dropped"] == {}
    assert report["env_frames"] == accounting["consumed"]
    # Every batch of 24 fresh unrolls is used twice, and none is skipped.
    assert report["env_frames"] == pytest.approx(report["learner_updates"] / 2 * 24 * 20 * 0.9, rel=0.03)
    assert report["tasks"]["catch"]["episode_return"]["mean_last_100"] > RANDOM_CATCH


def test_credit_before_the_unroll_bounds_policy_lag(tmp_path: Path) -> None:
    words = ("--actor.credit", "before_unroll", "--learner.max_policy_lag", "3", "--learner.batch_size", "16")
    report = train(tmp_path / "run", *SHORT, *words, "--actor.count", "1", "--actor.environments", "16")
    assert 0 < report["policy_lag"]["max"] <= 3
    # Credit enforces the bound, rather than dropping: an unroll is dropped only if its weights were late by a whole update.
    assert set(report["accounting"]["dropped"]) <= {"stale"}
    assert report["accounting"]["dropped"].get("stale", 0) <= 0.05 * report["accounting"]["generated"]


def test_stale_unrolls_are_dropped_and_counted(tmp_path: Path) -> None:
    report = train(tmp_path / "run", *SHORT, "--learner.max_policy_lag", "0", "--actor.count", "2")
    assert report["policy_lag"]["max"] == 0
    assert set(report["accounting"]["dropped"]) == {"stale"}
    assert report["accounting"]["dropped"]["stale"] > 0


def test_a_recurrent_agent_trains_with_lz4(tmp_path: Path) -> None:
    words = (
        "--network.core",
        "lstm",
        "--network.core.size",
        "64",
        "--network.last_action_and_reward",
        "true",
        "--actor.compression",
        "lz4",
    )
    # With these settings six of six seeds end above 0.97; with RMSProp at its paper's rate, one in six learns nothing in this time.
    learning = ("--optimizer.kind", "adam", "--optimizer.learning_rate", "2e-3", "--stop.env_frames", "240000")
    report = train(tmp_path / "run", *words, *learning)
    assert report["tasks"]["catch"]["episode_return"]["mean_last_100"] > RANDOM_CATCH


def test_two_tasks_train_with_zstd_and_bfloat16_weights(tmp_path: Path) -> None:
    words = ("--env.tasks", "catch,catch_instructed", "--network.language", "true", "--actor.compression", "zstd")
    report = train(tmp_path / "run", *SHORT, *words, "--learner.weights_dtype", "bfloat16")
    assert set(report["tasks"]) == {"catch", "catch_instructed"}
    catch, instructed = report["tasks"]["catch"], report["tasks"]["catch_instructed"]
    # Environments are assigned in turn, so both tasks get half of the frames.
    assert abs(catch["env_frames"] - instructed["env_frames"]) <= 0.02 * report["env_frames"]
    assert min(task["episode_return"]["episodes"] for task in report["tasks"].values()) > 100
    points = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {name: task["env_frames"] for name, task in points[-1]["tasks"].items()} == {
        name: task["env_frames"] for name, task in report["tasks"].items()
    }
    checkpoint = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    model = load_checkpoint(checkpoint).tensors["model"]
    # weights are published in bfloat16, but trained in float32
    assert {str(tensor.dtype) for tensor in model.values()} == {"torch.float32"}


def test_the_agent_learns_to_follow_the_instruction(tmp_path: Path) -> None:
    words = ("--env.tasks", "catch_instructed", "--network.language", "true", "--stop.env_frames", "400000")
    report = train(tmp_path / "run", *words, "--optimizer.schedule", "constant")
    # The instruction flips the reward's sign in half of the games, so an agent that ignores it gets 0: five standard errors less.
    assert report["tasks"]["catch_instructed"]["episode_return"]["mean_last_100"] > 0.5


def test_actors_without_an_index_lease_one(tmp_path: Path) -> None:
    """As in a cluster: services are started separately, with two identical replicas of the actor."""
    learner, paramserver = free_ports(2)
    run_dir = tmp_path / "run"
    words: tuple[str | Path, ...] = ("--config", CATCH, "--run_dir", run_dir)
    words += ("--learner.threads", "1", "--stop.env_frames", "null", "--actor.environments", "16")
    asks = ("--paramserver", f"tcp://127.0.0.1:{paramserver}")
    playing = ("--learner", f"tcp://127.0.0.1:{learner}", *asks)
    with ExitStack() as all_of_them:
        actors = [
            all_of_them.enter_context(Process(tmp_path / f"actor{number}.out", "herd_actor", *words, *playing)) for number in range(2)
        ]
        # The parameter server starts last, so actors wait for it.
        serves = ("--listen", f"127.0.0.1:{paramserver}")
        server = all_of_them.enter_context(Process(tmp_path / "paramserver.out", "herd_paramserver", *words, *serves))
        until(lambda: None not in {pid_of(run_dir, "actor-0"), pid_of(run_dir, "actor-1")}, "two actors with indices 0 and 1")
        listens = ("--listen", f"127.0.0.1:{learner}", *asks)
        learning = all_of_them.enter_context(Process(tmp_path / "learner.out", "herd_learner", *words, *listens))

        def sent(actor: str) -> float:
            return total(metrics(run_dir, actor), "herd_actor_unrolls_sent_total")

        def trained() -> float:
            return total(metrics(run_dir, "learner-0"), "herd_learner_env_frames_total")

        # On a busy machine one of them may begin thousands of frames after the other.
        until(lambda: min(sent("actor-0"), sent("actor-1")) > 0, "both send unrolls")
        frames = trained()
        until(lambda: trained() > frames + 5_000, "and the learner has them")
        for process in (learning, *actors, server):
            assert process.stop(signal.SIGTERM) == 0, process.output
    assert pid_of(run_dir, "actor-0") != pid_of(run_dir, "actor-1")
    report = read_report(run_dir)
    assert report["accounting"]["dropped"] == {}
    state = load_checkpoint(run_dir / "checkpoints" / f"{report['learner_updates']:012d}").state
    assert sorted(account[0] for account in state["ledger"]["accounts"]) == [0, 1]  # both have sent unrolls
