"""Whole runs in which the inference service chooses the actions."""

from __future__ import annotations

import signal
from pathlib import Path

from herd.telemetry.scrape import total
from tests.system.whole_runs import RANDOM_CATCH, Run, metrics, read_points, read_report

CENTRAL = ("--actor.inference", "remote", "--learner.log_interval_seconds", "0.5")


def test_a_recurrent_agent_learns_with_remote_inference_and_lz4(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    words = (*CENTRAL, "--network.core", "lstm", "--network.core.size", "32", "--network.last_action_and_reward", "true")
    compressed = ("--actor.compression", "lz4")
    with Run(run_dir, *words, *compressed, "--optimizer.schedule", "constant") as run:

        def is_good_at_it() -> bool:
            returns = [point["episode_return_mean_100"] for point in read_points(run_dir)]
            return any(mean is not None and mean > RANDOM_CATCH for mean in returns)

        run.until(is_good_at_it, "the agent to be good at it")
        assert run.stop(signal.SIGTERM) == 0, run.output
    assert read_report(run_dir)["accounting"]["dropped"] == {}


def test_dice_with_two_agents_trains_with_two_inference_processes(tmp_path: Path) -> None:
    """DiCE's temperatures reach the policy: the unrolls contain the temperatures with which the service sampled."""
    run_dir = tmp_path / "run"
    words = ("--agents", "2", "--actor.count", "2", "--actor.environments", "16", "--inference.replicas", "2", *CENTRAL)
    with Run(run_dir, *words, "--loss.kind", "dice") as run:
        agents = [run_dir / "agents" / str(number) for number in range(2)]

        def frames(agent: Path) -> int:
            return int(([{"env_frames": 0}, *read_points(agent)])[-1]["env_frames"])

        run.until(lambda: all(frames(agent) > 6_000 for agent in agents), "both agents to learn")
        acted = [total(metrics(run_dir, f"inference-{number}"), "herd_inference_agent_steps_total") for number in range(2)]
        assert min(acted) > 0  # both processes serve actors
        assert run.stop(signal.SIGTERM) == 0, run.output
    for agent in agents:
        report = read_report(agent)
        assert report["accounting"]["dropped"] == {}
        assert len(report["tasks"]["catch"]["temperatures"]) > 5
