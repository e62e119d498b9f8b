"""``python -m benchmarks.environments``: what it records of an environment, without Herd, and what it makes of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.environments import GAMES, made, random_play, table
from tests.patience import patient

REPORTED = {"first": 9.5, "last": 40.0, "sum": 49.5}
TRIED = {
    "name": "Pole",
    "wheel": "poles",
    "version": "1.0",
    "check": {"exit_code": 0, "findings": ["ok      fine", "note    slow"]},
    "random": [9.0, 10.0],
    "exit_code": 0,
    "told": ["rewards: as given"],
}


def test_games_are_recorded_while_the_run_has_its_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    environment = made("CartPole-v1", {}, str(run))
    lengths = []
    for _ in range(2):
        environment.reset(seed=1)
        steps, is_over = 0, False
        while not is_over:
            _, _, is_over, _, _ = environment.step(0)
            steps += 1
        lengths.append(float(steps))
        run.mkdir(exist_ok=True)
    assert [float(line) for line in (run / GAMES).read_text().splitlines()] == lengths[1:]


def test_random_play_obeys_masks() -> None:
    # Each of at most 200 steps costs 1, and each action that the mask forbids 10.
    assert min(random_play("Taxi-v4", {})) >= -200


def test_the_table_tells_equal_returns_from_others() -> None:
    learned = {**TRIED, "games": 2, "recorded": REPORTED, "reported": REPORTED, "agree": True, "frames_per_second": 1234.0}
    wrong = {**learned, "agree": False}
    refused = {**TRIED, "exit_code": 2, "told": ["herd: no such environment"], "random": ["ImportError"]}
    lines = table([learned, wrong, refused]).splitlines()[2:]
    assert lines[0] == "| `Pole` | poles 1.0 | 0: note    slow | 9.5 | 9.5, 40 | 9.5, 40 | yes | 1,234 | rewards: as given |"
    assert "| **no** |" in lines[1]
    assert "| fails | exit code 2 |" in lines[2]


@pytest.mark.soak
@pytest.mark.processes
@pytest.mark.timeout(patient(300))
def test_an_environment_is_tried(tmp_path: Path) -> None:
    words = ["--output", str(tmp_path), "--only", "CartPole-v1", "--seconds", "2"]
    subprocess.run([sys.executable, "-m", "benchmarks.environments", *words], check=True, timeout=patient(280))
    [one] = json.loads((tmp_path / "environments.json").read_text())["environments"]
    assert one["check"]["exit_code"] == one["exit_code"] == 0
    assert "use mlp" in one["refused"][-1]
    assert one["agree"]
    assert one["recorded"]["sum"] == one["reported"]["sum"] > 0
