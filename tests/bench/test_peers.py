"""The comparison with other programs: what environments write down, curves, the table, and a whole run of Herd."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
import torch

from benchmarks.peers import __main__ as command
from benchmarks.peers import envpool_ppo, herd_atari, programs, runs, tables, tasks
from herd.components.suites.api import Slots

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


def written(folder: Path) -> list[tuple[int, float]]:
    """Return the length and the return of each game in the only file."""
    (path,) = folder.iterdir()
    lines = [line.split(",")[1:] for line in path.read_text().splitlines()]
    ends = [0, *(int(frames) for frames, _ in lines)]
    return [(end - start, float(value)) for start, end, (_, value) in zip(ends, ends[1:], lines, strict=False)]


def test_environments_write_down_every_game_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tasks.EPISODES, str(tmp_path))
    env = tasks.Recorded(_Counting())
    for steps in (3, 2, 3):  # the second game is given up
        env.reset()
        for _ in range(steps):
            env.step(0)
    env.close()
    assert written(tmp_path) == [(3, 6.0), (5, 6.0)]


def test_a_game_of_atari_is_written_down_when_no_life_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tasks.EPISODES, str(tmp_path))
    env = tasks.breakout()
    env.reset(seed=1)
    lives, rewards, over = [5], 0.0, False
    while not over:
        _, reward, over, _, info = env.step(1 + len(lives) % 3)
        lives, rewards = [*lives, info["lives"]], rewards + float(reward)
    env.close()
    assert set(lives) == {5, 4, 3, 2, 1, 0}
    assert written(tmp_path) == [(info["episode_frame_number"], rewards)]


def test_herd_writes_down_whole_games_of_atari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tasks.EPISODES, str(tmp_path))
    settings = herd_atari.RecordedAtariSettings(tasks=("breakout",))
    environments = herd_atari.PART.load()(settings, herd_atari.PART.spec(settings), Slots(1, 0, 1, 1))
    environments.reset()
    draw, rewards, steps, ends = np.random.default_rng(1), [0.0], [0], 0
    while len(rewards) < 3:
        transition = environments.step(draw.integers(0, 4, 1).astype(np.int32))
        rewards[-1] += transition.rewards[0]
        steps[-1] += int(transition.valid[0])
        ends += int(transition.terminated[0])
        if transition.finished:
            rewards, steps = [*rewards, 0.0], [*steps, 0]
    environments.close()
    assert ends == 10  # each of two games has five lives
    assert written(tmp_path) == [(4 * length, value) for length, value in zip(steps[:2], rewards[:2], strict=True)]


def test_envpool_games_go_on_after_a_lost_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tasks.EPISODES, str(tmp_path))
    log, nothing = tasks.EpisodeLog(), np.zeros(envpool_ppo.NUM_ENVIRONMENTS, bool)
    games = envpool_ppo.Games(log)
    for elapsed, lives in enumerate([2, 1, 1, 0], start=1):  # the second step loses a life, which ends an episode but no game
        info = {"reward": nothing + 4.0, "elapsed_step": nothing + elapsed, "terminated": nothing.astype(np.int32)}
        info["terminated"][2] = lives == 0
        games.count(info, nothing)
    games.count(info | {"terminated": nothing}, np.arange(envpool_ppo.NUM_ENVIRONMENTS) == 5)
    log.close()
    assert written(tmp_path) == [(16, 16.0), (16, 20.0)]


def test_the_loss_of_ppo_is_that_of_its_paper() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, values = torch.randn(12, 3, generator=generator), torch.randn(12, generator=generator)
    actions = torch.randint(3, (12,), generator=generator)
    chances = [np.exp(row) / np.exp(row).sum() for row in logits.double().numpy()]
    ratios = np.array([0.5, 0.85, 0.89, 0.91, 1.0, 1.05, 1.09, 1.11, 1.2, 2.0, 0.7, 1.3])  # both limits, with either sign of advantage
    log_probs = np.array([np.log(chance[action]) for chance, action in zip(chances, actions, strict=True)]) - np.log(ratios)
    old_values, advantages = values.double().numpy() + np.linspace(-0.3, 0.3, 12), np.linspace(-2.0, 2.5, 12)[np.arange(12) * 5 % 12]
    batch = envpool_ppo.Batch(
        torch.empty(0), actions, *(torch.from_numpy(column).float() for column in (log_probs, old_values, advantages))
    )

    expected, normal = 0.0, (advantages - advantages.mean()) / advantages.std(ddof=1)
    for row in range(12):
        gain = min(ratios[row] * normal[row], min(max(ratios[row], 0.9), 1.1) * normal[row])
        target = old_values[row] + advantages[row]
        near = old_values[row] + min(max(float(values[row]) - old_values[row], -0.1), 0.1)
        error = max((float(values[row]) - target) ** 2, (near - target) ** 2)
        entropy = -sum(chance * np.log(chance) for chance in chances[row])
        expected += (-gain + 0.5 * 0.5 * error - 0.01 * entropy) / 12
    assert float(envpool_ppo.ppo_loss(logits, values, batch)) == pytest.approx(expected, rel=1e-5)


def test_advantages_are_discounted_sums_of_errors_up_to_the_end() -> None:
    generator = torch.Generator().manual_seed(2)
    rewards, values = torch.randn(6, 2, generator=generator), torch.randn(7, 2, generator=generator)
    ended = torch.tensor([[0, 0], [0, 1], [1, 0], [0, 0], [0, 1], [0, 0]]).float()
    found = envpool_ppo.generalized_advantages(rewards, values, ended)
    for start in range(6):
        for column in range(2):
            total, weight = 0.0, 1.0
            for t in range(start, 6):
                last = bool(ended[t, column])
                total += weight * float(rewards[t, column] + (0.0 if last else 0.99 * values[t + 1, column]) - values[t, column])
                weight *= 0.0 if last else 0.99 * 0.95
            assert float(found[start, column]) == pytest.approx(total, abs=1e-5)


def test_a_curve_ends_with_the_first_game_that_brings_the_score(tmp_path: Path) -> None:
    returns = [0, *range(60), *([0] * 60)]
    (tmp_path / "0.csv").write_text("".join(f"{1000 + game},{game + 1},{value}\n" for game, value in enumerate(returns)))
    points = runs.curve(tmp_path, 1000.0, score=30.0)
    assert points[-1] == (57, 56.0, 30.5)
    assert all(mean < 30.0 for _, _, mean in points[:-1])
    assert len(runs.curve(tmp_path, 1000.0, score=40.0)) == len(returns) + 1 - runs.GAMES


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
    assert "| 2 of 2 | 50 (50 to 50) | 0.3 | 1.0 | 2,500 | 1,000 | 1.0 |" in herd
    assert "| 0 of 1 | - | - |" in sb3
    assert "| 40.0, 1 |" in sb3  # one seed has no interval
    game = replace(RUN, task="pong")
    tables.draw([RUN, slow, failed, game, replace(game, seed=2)], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000


@pytest.mark.parametrize("task", tasks.TASKS)
def test_every_task_has_an_experiment_of_herd(task: str) -> None:
    words = programs.command_of("herd", Path(sys.executable), task=task, seed=3, frames=1_000, run=Path("/run"))
    assert Path(words[words.index("train") + 1]).is_file()
    assert words[words.index("--seed") + 1] == "3"
    assert words[words.index("--env.tasks") + 1] == (tasks.TASKS[task].game or f"benchmarks.peers.tasks:{task}")


def test_a_turn_that_the_mask_forbids_leaves_a_dial_where_it_is() -> None:
    env = tasks.dials()
    env.reset(seed=0)
    for _ in range(20):
        *_, truncated, _ = env.step(np.array([0, 2, 1]))
    assert truncated


@pytest.mark.soak
@pytest.mark.processes
def test_herd_trains_a_task_whose_environments_write_down_their_games(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.TASKS, "cartpole", tasks.Task(4_000, 475.0))
    run = runs.train("herd", Path(sys.executable), "cartpole", 1, alone=True, hardware={})
    assert run.frames[-1] == pytest.approx(4_000, rel=0.3)
    assert 10.0 < run.returns[0] < 100.0
    assert run.core_seconds > 1.0
    assert run.peak_bytes > 1e8


ENDLESS = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1], "w").write(str(child.pid))
with open(os.environ["PEERS_EPISODES"] + "/0.csv", "w") as file:
    file.writelines(f"{time.time()},{game + 1},{game}\\n" for game in range(60))
child.wait()
"""


@pytest.mark.processes
def test_a_run_of_atari_ends_with_its_score_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    words = (str(tmp_path / "endless.py"), str(tmp_path / "pid"))
    monkeypatch.setitem(programs.PROGRAMS, "endless", programs.Program("Endless", (), words))
    run = runs.train("endless", Path(sys.executable), "breakout", 1, alone=True, hardware={})
    assert (run.frames[-1], run.returns[-1]) == (56, 30.5)
    child = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


@pytest.mark.processes
def test_herd_finds_the_suite_that_writes_games_down(tmp_path: Path) -> None:
    code = "from herd.components.suites import SUITES; print(*SUITES.parts, *SUITES.broken.values())"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=programs.surroundings(tmp_path), capture_output=True, text=True, timeout=60, check=True
    )
    assert "recorded_atari" in done.stdout.split()


def test_bad_words_are_refused_before_anything_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, line in (
        (["--tasks", "pong,herd"], "herd: not among cartpole"),
        (["--programs", "pong"], "pong: not among herd"),
        (["--seeds", "x"], "invalid int value: 'x'"),
        (["--seeds", "0"], "should be at least 1 and at least 0"),
        (["--first_seed", "-1"], "should be at least 1 and at least 0"),
    ):
        monkeypatch.setattr(sys, "argv", ["peers", *words, "--environments", str(tmp_path / "e"), "--output", str(tmp_path / "o")])
        with pytest.raises(SystemExit):
            command.main()
        assert line in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
