"""``herd train`` with two agents: a learner each under one supervisor, one parameter server, and actors divided between both."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from herd.cli.main import main
from herd.telemetry.scrape import total
from tests.system.whole_runs import Run, env_frames, herd, metrics, read_report

AGENTS = ("--agents", "2", "--actor.count", "2", "--actor.environments", "16", "--learner.log_interval_seconds", "0.5")
LEASES = "herd_paramserver_agent_leased_indices"
STOP = 20_000
"""Env frames of a run; learning would need more."""


def are_past(agents: list[Path], frames: int) -> bool:
    return all(env_frames(agent) > frames for agent in agents)


def test_actors_of_a_finished_agent_move_to_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "run"
    agents = [run_dir / "agents" / str(number) for number in range(2)]
    with Run(run_dir, *AGENTS) as run:
        run.until(lambda: all(env_frames(agent) > 0 for agent in agents), "both agents to learn")
        root = metrics(run_dir, "paramserver-0")
        assert [total(root, LEASES, agent=number) for number in ("0", "1")] == [1, 1]
        run.until(lambda: are_past(agents, 2 * STOP), "more frames of each than the stop below")
        assert run.stop(signal.SIGTERM) == 0, run.output
    reports = [read_report(agent) for agent in agents]
    assert not (run_dir / "report.json").exists()
    for number in range(2):
        assert f"agent {number}: " in run.output  # the row of the live view
        assert str(agents[number] / "report.json") in run.output  # printed in the summary

    # Agent 0 is already past this stop and ends at once. Agent 1 starts from the beginning.
    for path in (agents[1] / "checkpoints").iterdir():
        path.rename(run_dir / path.name)
    (agents[1] / "metrics.jsonl").unlink()
    logs = [run_dir / "logs" / f"actor-{number}.log" for number in range(2)]
    before = [len(log.read_text()) for log in logs]
    done = herd("train", "--run_dir", run_dir, "--resume", "--stop.env_frames", str(STOP))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "learner-0 has ended" in done.stdout
    assert STOP <= read_report(agents[1])["env_frames"] < 2 * STOP
    assert read_report(agents[0])["env_frames"] == reports[0]["env_frames"]
    for log, length in zip(logs, before, strict=True):
        said = log.read_text()
        assert re.search(r"actor started +agent=1", said[length:]), said
        assert "Traceback" not in said

    assert main(["evaluate", str(agents[1]), "--episodes", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"]
    assert main(["plot", str(run_dir), "--group", "none", "--output", str(tmp_path / "curves.svg")]) == 0
    drawn = (tmp_path / "curves.svg").read_text()
    assert "agents/0" in drawn
    assert "agents/1" in drawn


def test_dice_with_two_agents_trains_with_two_inference_processes(tmp_path: Path) -> None:
    """DiCE's temperatures reach the policy: the unrolls contain the temperatures with which the service sampled."""
    run_dir = tmp_path / "run"
    words = (*AGENTS, "--inference.replicas", "2", "--actor.compression", "lz4", "--actor.inference", "remote")
    with Run(run_dir, *words, "--loss.kind", "dice") as run:
        agents = [run_dir / "agents" / str(number) for number in range(2)]
        run.until(lambda: are_past(agents, 6_000), "both agents to learn")
        acted = [total(metrics(run_dir, f"inference-{number}"), "herd_inference_agent_steps_total") for number in range(2)]
        assert min(acted) > 0  # both processes serve actors
        assert run.stop(signal.SIGTERM) == 0, run.output
    for agent in agents:
        report = read_report(agent)
        assert report["accounting"]["dropped"] == {}
        assert len(report["tasks"]["catch"]["temperatures"]) > 5
