"""A small run of the measurement of many tasks, with real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import many_tasks


@pytest.mark.processes
def test_many_tasks_are_measured_together_and_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(many_tasks, "WARMUP_SECONDS", 0.5)
    output = tmp_path / "figures.json"
    words = ["catch", "--output", str(output), "--repeats", "1", "--seconds", "1", "--alone", "1"]
    monkeypatch.setattr("sys.argv", ["many_tasks", *words, "--env.tasks", "catch,catch_deceptive"])
    many_tasks.main()
    runs = json.loads(output.read_text())["runs"]
    assert {name: list(run[0]["tasks"]) for name, run in runs.items()} == {"together": ["catch", "catch_deceptive"], "catch": ["catch"]}
    (together,) = runs["together"]
    assert sum(task["env_frames"] for task in together["tasks"].values()) == together["accounting"]["consumed"]
    # Equal games under equal steps: what differs is the message of which a part was trained on.
    assert together["task_frames_spread"] < 0.05
    assert min(run[0]["core_microseconds"] for run in runs.values()) > 0
    printed = capsys.readouterr().out
    assert "together" in printed
    assert "spread of frames" in printed
