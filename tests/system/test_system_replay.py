"""Agents of a sweep, and shards of a learner, that learn from one replay service."""

from __future__ import annotations

import json
from pathlib import Path

from tests.system.whole_runs import CATCH, herd, read_report, train

REPLAY = (
    *("--replay.kind", "shared", "--replay.fraction", "0.5", "--replay.minimum_fill_agent_steps", "2000"),
    *("--learner.queue_batches", "9", "--learner.threads", "1", "--loss.trust_region", "implied"),
)
RECURRENT = ("--network.core", "lstm", "--network.core.size", "16")


def test_agents_of_a_sweep_share_one_replay(tmp_path: Path) -> None:
    sweep = json.dumps({"optimizer.learning_rate": [2e-3, 1e-3]})
    words = ("--agents", "2", "--sweep", sweep, "--actor.count", "2", "--stop.env_frames", "20000")
    run_dir = tmp_path / "run"
    done = herd("train", CATCH, "--run_dir", run_dir, *REPLAY, *RECURRENT, *words)
    assert done.returncode == 0, done.stderr + done.stdout
    reports = [read_report(run_dir / "agents" / str(agent)) for agent in (0, 1)]
    assert [report["sweep"] for report in reports] == [{"optimizer.learning_rate": 2e-3}, {"optimizer.learning_rate": 1e-3}]
    for agent, report in enumerate(reports):
        replay = report["replay"]
        assert 0.1 < replay["fraction"] <= 0.5
        assert 0.0 <= replay["rejected_share"] <= 1.0
        points = (run_dir / "agents" / str(agent) / "metrics.jsonl").read_text().splitlines()
        last = json.loads(points[-1])
        assert {"kl_online", "kl_replayed", "mean_rho_online", "mean_rho_replayed", "rejected_share_replayed"} <= set(last)
        assert last["learning_rate"] <= reports[agent]["sweep"]["optimizer.learning_rate"]


def test_two_shards_replay_from_two_replicas(tmp_path: Path) -> None:
    words = ("--learner.shards", "2", "--replay_service.replicas", "2", "--stop.env_frames", "30000")
    report = train(tmp_path / "run", *REPLAY, *words)
    assert 0.1 < report["replay"]["fraction"] <= 0.5
    assert report["replay"]["staleness"]["max"] > 0
    assert report["accounting"]["dropped"] == {}
