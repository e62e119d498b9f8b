"""The command ``herd check``; what a check finds is tested with the gymnasium suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from herd.cli.check import run

pytestmark = pytest.mark.processes

OWN = """
import gymnasium, numpy as np


class Own(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, reward=1.0):
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.ones(2, np.float32), self.reward, self.steps == 5, False, {}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_environment.py").write_text(OWN)
    (tmp_path / "own.yaml").write_text("env: {suite: gymnasium, tasks: ['own_environment:Own'], kwargs: {reward: text}}\n")
    monkeypatch.chdir(tmp_path)


def test_an_environment_without_problems(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["own_environment:Own", "--env.kwargs", '{"reward": 500.0}']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "own_environment:Own"
    assert "  ok      reset(seed=1) repeats its games" in lines
    note = lines.index("  note    rewards from 500 to 500")
    assert lines[note + 1].strip() == "-> value_scaling.kind popart scales returns by their running deviation"
    assert any("random steps in" in line and "returns 2.5e+03 to 2.5e+03" in line for line in lines)


def test_a_problem_of_a_run_file_s_environment_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["own.yaml"]) == 1
    assert "  PROBLEM returned the reward 'text', not a number" in capsys.readouterr().out
