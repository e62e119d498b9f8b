"""Recipes as shipped reach a score that a wrong sign or a lost term would not let them reach. Minutes each; the nightly job runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.whole_runs import herd, read_report

# The bounds lie below what each recipe was measured to reach (benchmarks/README.md and its log), so that chance seldom fails them.
RECIPES = {
    "cartpole": ([], 300.0),
    "minigrid-empty": ([], 0.85),
    "pendulum": ([], -250.0),
    "dials": ([], 18.0),
    "pong": ([], 15.0),
    "breakout": (["--stop.env_frames", "2_000_000"], 8.0),
    "laser-quick": (["--env.tasks", "breakout", "--stop.env_frames", "1_000_000"], 7.0),
    "dice-quick": (["--stop.env_frames", "4_000_000"], 4.0),
}
"""For each experiment: what is changed, and the least mean return of the last 100 games."""


@pytest.mark.learning
@pytest.mark.timeout(7_000)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("experiment", RECIPES)
def test_a_recipe_reaches_its_score(tmp_path: Path, experiment: str, seed: int) -> None:
    changes, least = RECIPES[experiment]
    done = herd("train", experiment, "--seed", str(seed), "--run_dir", tmp_path / "run", *changes, timeout=6_900)
    assert done.returncode == 0, done.stderr + done.stdout
    assert read_report(tmp_path / "run")["episode_return"]["mean_last_100"] >= least


@pytest.mark.learning
@pytest.mark.timeout(7_000)
def test_popart_learns_three_games_whose_rewards_differ(tmp_path: Path) -> None:
    done = herd("train", "atari-3games-quick", "--run_dir", tmp_path / "run", timeout=6_900)
    assert done.returncode == 0, done.stderr + done.stdout
    tasks = read_report(tmp_path / "run")["tasks"]
    for game, least in {"krull": 2_500.0, "kung_fu_master": 2_000.0, "up_n_down": 1_200.0}.items():
        assert tasks[game]["episode_return"]["mean_last_100"] >= least, game
