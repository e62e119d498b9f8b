from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from herd.config.loading import dump_settings
from herd.config.run import RunSettings
from herd.files import FileError
from herd.view.report.facts import changed_settings, read_facts
from herd.view.status import read_status


def point(step: int, **tasks: dict[str, Any]) -> dict[str, Any]:
    return {
        "env_frames": 1_000_000 * step,
        "wall_seconds": 100.0 * step,
        "frames_per_second": 9_000.0 + step,
        "learner_updates": 1000 * step,
        "policy_lag_mean": 1.25,
        "episode_return_mean_100": next(iter(tasks.values()))["episode_return_mean_100"] if tasks else None,
        "tasks": tasks,
    }


def task(mean: float | None, episodes: int, human: float | None = None) -> dict[str, Any]:
    return {"env_frames": 500_000, "episodes": episodes, "episode_return_mean_100": mean, "human_normalised": human}


def make(folder: Path, points: list[dict[str, Any]], report: dict[str, Any] | None = None, settings: RunSettings | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if settings is not None:
        (folder / "config.yaml").write_text(dump_settings(settings))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in points))
    if report is not None:
        (folder / "report.json").write_text(json.dumps(report))
    return folder


def test_facts_of_a_finished_run_come_from_report_and_last_point(tmp_path: Path) -> None:
    points = [point(1, pong=task(-20.0, 60)), point(2, pong=task(5.0, 150, 0.7)), point(3, pong=task(4.5, 200, 0.6))]
    points[-1]["clipped_share"] = 0.95
    report = {
        "frames_per_second": 8_123.4,
        "tasks": {"pong": {"progress": {"games": 100, "mean_first": -20.5, "mean_last": 4.5}}},
        "learns_from": "rewards: as given",
        "machine": {"processor": "Mine", "usable_cores": 2, "memory_bytes": 8 << 30, "load_average_1_minute": 3.0, "ale-py": None},
    }
    facts = read_facts(make(tmp_path, points, report, RunSettings(name="pong7")))
    assert (facts.name, facts.state, facts.agents) == ("pong7", "ended", [tmp_path])
    assert dict(facts.figures) == {
        "environment frames": "3.00 M",
        "running time": "05:00",
        "frames per second": "8,123",
        "learner updates": "3,000",
        "return, last 100 games": "4.50",
        "policy lag, updates": "1.2",
    }
    [row] = facts.tasks
    # The best value is over full windows only: -20 is over 60 games.
    assert (row.games, row.first_return, row.last_return, row.best_return, row.human_normalised) == ("200", "-20.50", "4.50", "5.00", "60%")
    assert facts.warnings == ["95% of updates are clipped"]
    assert facts.learns_from == "rewards: as given"
    assert facts.machine == [("processor", "Mine"), ("usable cores", "2"), ("memory", "8.0 GiB")]


def test_facts_of_a_running_run_leave_unknown_values_out(tmp_path: Path) -> None:
    facts = read_facts(make(tmp_path, [point(1, pong=task(None, 0))], settings=RunSettings()))
    assert facts.state == "killed"  # no process is alive
    [row] = facts.tasks
    assert (row.first_return, row.last_return, row.best_return, row.human_normalised) == ("-", "-", "-", "")
    assert (facts.learns_from, facts.machine, facts.warnings) == ("", [], ["no process is alive, and the learner left no report"])
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(FileError, match="contains no points yet"):
        read_facts(tmp_path)


def test_a_game_that_never_ends_is_a_warning(tmp_path: Path) -> None:
    def double_dunk(frames: int, games: int, points: float) -> dict[str, Any]:
        one = task(-3.0, games) | {"env_frames": frames, "episode_return_sum": points}
        return point(1, double_dunk=one) | {"wall_seconds": frames / 1000.0, "episodes": games}

    points = [double_dunk(frames, frames // 10_000, frames / -500) for frames in range(0, 3_600_001, 100_000)]
    points += [double_dunk(3_700_000, 360, -7200.0), double_dunk(4_300_000, 360, -7200.0) | {"entropy": 0.05}]
    facts = read_facts(make(tmp_path, points, {}, RunSettings()))
    entropy = "the policy hardly explores any more (entropy 0.050 nats)"
    assert facts.warnings == [
        "no game has ended for 12 minutes",
        "double_dunk: the agent makes the game wait (games last 60 times as long as before, with few points)",
        entropy,
    ]
    with (tmp_path / "metrics.jsonl").open("r+") as curve:
        curve.write("[")  # the first line is no point any more: the status still has the newest, but nothing to compare it with
    status = read_status(tmp_path)
    assert status.now is not None
    assert (status.now.env_frames, status.warnings) == (points[-1]["env_frames"], (entropy,))


def test_agents_are_summed_and_sorted_by_their_returns(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(dump_settings(RunSettings(agents=3)))
    for agent, mean in enumerate((-3.0, 8.0, 1.0)):
        last = point(2, pong=task(mean, 120)) | {"clipped_share": 0.99 if agent == 2 else 0.0}
        make(tmp_path / "agents" / str(agent), [point(1, pong=task(-9.0, 100)), last], {} if agent else {"tasks": {}})
    facts = read_facts(tmp_path)
    assert [agent.name for agent in facts.agents] == ["1", "2", "0"]
    assert [(row.agent, row.last_return) for row in facts.tasks] == [("0", "-3.00"), ("1", "8.00"), ("2", "1.00")]
    assert (facts.state, facts.warnings) == ("ended", ["agent 2: 99% of updates are clipped"])
    figures = dict(facts.figures)
    assert (figures["environment frames"], figures["agents"]) == ("6.00 M", "3")


def test_changed_settings_differ_from_their_variants_defaults() -> None:
    assert changed_settings(yaml.safe_load(dump_settings(RunSettings()))) == []
    given = {
        "name": "mine",
        "run_dir": "runs/mine",
        "sweep": {"optimizer.learning_rate": [0.1, 0.2]},
        "agents": 2,
        "env": {"suite": "catch", "tasks": ["catch"]},
        "loss": {"kind": "dice"},
        "actor": {"count": 5},
        "optimizer": {"kind": "adam", "learning_rate": 0.5},
        "network": {"of_another_version": True},
    }
    changed = {setting.key: (setting.value, setting.default) for setting in changed_settings(given)}
    assert changed["name"] == ("mine", "run")
    assert changed["actor.count"] == ("5", "2")
    assert changed["env.suite"] == ("catch", "atari")
    assert changed["loss.kind"] == ("dice", "impala")
    assert changed["optimizer.kind"] == ("adam", "rmsprop")
    assert changed["optimizer.learning_rate"][0] == "0.5"
    assert changed["network.of_another_version"] == ("true", "")
    assert changed["agents"] == ("2", "1")
    assert not {"run_dir", "env.tasks"} & changed.keys()
    assert changed["sweep.optimizer.learning_rate"] == ("0.1, 0.2", "")
