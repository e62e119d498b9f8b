"""The comparison with other programs: what environments write down, curves, the table, and a whole run of Herd."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from benchmarks.peers import programs, runs, tables, tasks

RUN = runs.Run(
    task="cartpole",
    program="herd",
    seed=1,
    alone=True,
    wall_seconds=60.0,
    core_seconds=100.0,
    peak_bytes=1_000_000_000,
    hardware={},
    date="2026-01-01",
    frames=[25_000, 50_000, 100_000],
    seconds=[10.0, 20.0, 40.0],
    returns=[20.0, 480.0, 490.0],
)


class _Counting(gymnasium.Env[Any, Any]):
    """Games of three steps whose rewards are 1, 2 and 3."""

    observation_space = gymnasium.spaces.Discrete(1)
    action_space = gymnasium.spaces.Discrete(1)

    def reset(self, **_: Any) -> Any:
        self._step = 0
        return 0, {}

    def step(self, _: Any) -> Any:
        self._step += 1
        return 0, float(self._step), False, self._step == 3, {}


def test_environments_write_down_every_game_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tasks.EPISODES, str(tmp_path))
    env = tasks.Recorded(_Counting())
    for steps in (3, 2, 3):  # the second game is given up
        env.reset()
        for _ in range(steps):
            env.step(0)
    env.close()
    (path,) = tmp_path.iterdir()
    lines = [line.split(",")[1:] for line in path.read_text().splitlines()]
    assert lines == [["3", "6"], ["8", "6"]]


def test_a_curve_counts_the_frames_of_all_copies_in_the_order_of_time(tmp_path: Path) -> None:
    for copy in range(2):
        games = [f"{1000 + 2 * game + copy},{10 * (game + 1)},{game}\n" for game in range(runs.GAMES)]
        (tmp_path / f"{copy}.csv").write_text("".join(games))
    points = runs.curve(tmp_path, began=1000.0)
    assert points[0][0] == 10 * runs.GAMES  # the first full window
    assert points[-1] == (20 * runs.GAMES, 2 * runs.GAMES - 1, np.mean(range(runs.GAMES // 2, runs.GAMES)))


def test_a_curve_has_at_most_200_points_and_ends_with_the_last_game(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("".join(f"{1000 + game},{game + 1},0\n" for game in range(1_234)))
    points = runs.curve(tmp_path, began=1000.0)
    assert 150 <= len(points) <= 200
    assert points[-1][0] == 1_234


def test_minutes_come_from_runs_that_were_alone(tmp_path: Path) -> None:
    slow = replace(RUN, seed=2, alone=False, wall_seconds=600.0, seconds=[100.0, 200.0, 400.0])
    failed = replace(RUN, program="sb3", returns=[20.0, 30.0, 40.0])
    text = tables.table([RUN, slow, failed])
    herd, sb3 = text.splitlines()[2:]
    assert "| 2 of 2 | 50 (50 to 50) | 0.3 | 1.0 | 1,000 | 1.0 |" in herd
    assert "| 0 of 1 | - | - |" in sb3
    tables.draw([RUN, slow, failed], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000


@pytest.mark.parametrize("task", tasks.TASKS)
def test_every_task_has_an_experiment_of_herd(task: str) -> None:
    words = programs.command_of("herd", Path(sys.executable), task=task, seed=3, frames=1_000, run=Path("/run"))
    assert Path(words[words.index("train") + 1]).is_file()
    assert words[words.index("--seed") + 1] == "3"
    assert f"benchmarks.peers.tasks:{task}" in words


def test_a_turn_that_the_mask_forbids_leaves_a_dial_where_it_is() -> None:
    env = tasks.dials()
    env.reset(seed=0)
    for _ in range(20):
        *_, truncated, _ = env.step(np.array([0, 2, 1]))
    assert truncated


@pytest.mark.processes
def test_herd_trains_a_task_whose_environments_write_down_their_games(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.TASKS, "cartpole", tasks.Task(4_000, 475.0))
    run = runs.train("herd", Path(sys.executable), "cartpole", 1, alone=True, hardware={})
    assert run.frames[-1] == pytest.approx(4_000, rel=0.3)
    assert 10.0 < run.returns[0] < 100.0
    assert run.core_seconds > 1.0
    assert run.peak_bytes > 1e8
