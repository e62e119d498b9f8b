"""A learner of two shards in real processes: it learns, and recovers when a shard is killed, starved or stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from herd.protocols.unrolls.metrics import FRAMES_DROPPED
from herd.telemetry.scrape import total
from tests.system.whole_runs import RANDOM_CATCH, Run, metrics, pid_of, read_report, train

SHARDS = ("--learner.shards", "2", "--learner.log_interval_seconds", "0.5", "--learner.checkpoint_interval_seconds", "1")
LEARNERS = ("learner-0", "learner-1")


def pids(run_dir: Path) -> tuple[int | None, ...]:
    return tuple(pid_of(run_dir, name) for name in LEARNERS)


def test_two_shards_learn_and_their_checkpoint_resumes_with_another_number(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    report = train(run_dir, *SHARDS, "--stop.env_frames", "120000")
    assert report["episode_return"]["mean_last_100"] > RANDOM_CATCH
    # The global batch equals that of one learner: 32 unrolls of 20 rows, nine in ten of which are steps.
    assert report["env_frames"] / report["learner_updates"] == pytest.approx(32 * 20 * 0.9, rel=0.02)
    assert report["accounting"]["dropped"] == {}
    assert report["sample_reuse"] == 1.0
    for shards in ("1", "2"):
        frames, updates = report["env_frames"], report["learner_updates"]
        report = train(run_dir, "--resume", "--learner.shards", shards, "--stop.env_frames", str(frames + 15_000))
        assert report["env_frames"] >= frames + 15_000
        assert report["learner_updates"] > updates


def have_no_pid_of(run: Run, before: Iterable[int | None]) -> bool:
    return not set(pids(run.run_dir)) & set(before)


def test_a_starving_shard_is_waited_for_and_a_lost_one_restarts_the_group(tmp_path: Path) -> None:
    # Each shard is fed by an actor of its own. With two tasks, each task's accounts are the sums over both shards, before and after.
    words = ("--learner.shard_timeout_seconds", "5", "--actor.count", "2", "--actor.links", "1", "--env.reward_scales", "1,1000")
    with Run(tmp_path / "run", *SHARDS, *words) as run:

        def starved_seconds() -> float:
            return total(metrics(run.run_dir, "learner-1"), "herd_learner_starved_seconds_total")

        run.until(lambda: run.env_frames() > 10_000, "learning begins")
        before = pids(run.run_dir)
        run.signal("actor-1", signal.SIGSTOP)
        started = starved_seconds()
        # This is twice as long as the time limit for a dead shard.
        run.until(lambda: starved_seconds() > started + 10.0, "nobody feeds the second shard")
        run.signal("actor-1", signal.SIGCONT)
        run.until_more_frames(10_000)
        assert pids(run.run_dir) == before
        assert sum(total(metrics(run.run_dir, name), FRAMES_DROPPED.name) for name in LEARNERS) == 0.0
        # Shard 0 leads the group, so different processes notice its absence and that of shard 1.
        for victim, number in (("learner-0", signal.SIGKILL), ("learner-1", signal.SIGSTOP)):
            before = pids(run.run_dir)
            run.signal(victim, number)
            run.until(partial(have_no_pid_of, run, before), f"both shards start again after {number.name}")
            run.until_more_frames(10_000)
        assert run.stop() == 0, run.output
    read_report(run.run_dir)


def test_a_learner_that_lost_its_lineage_file_opens_a_newer_one(tmp_path: Path) -> None:
    words = ("--learner.shards", "2", "--learner.max_policy_lag", "100000", "--learner.log_interval_seconds", "0.5")
    with Run(tmp_path / "run", *words, "--learner.checkpoint_interval_seconds", "3600") as run:

        def held() -> tuple[float, float]:
            samples = metrics(run.run_dir, "actor-0")
            return total(samples, "herd_weights_lineage"), total(samples, "herd_weights_updates")

        run.until(lambda: held()[1] > 20, "learning begins")
        for name in LEARNERS:
            run.signal(name, signal.SIGKILL)
        (run.run_dir / "lineage.json").unlink()
        # Started without a checkpoint, the learner opens lineage 1 again, hears that the server already holds it, and goes beyond.
        run.until(lambda: held() > (2.0, 20.0), "actors get weights of the new lineage")
        assert run.stop() == 0, run.output
    read_report(run.run_dir)
