"""Grids checked by hand, and the numbers of a sweep against their definitions."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from herd.components.suites.scores import ReferenceScores
from herd.sweeps.grid import combinations, directory_name, label, parse_values
from herd.sweeps.summary import ALL_TASKS, RunScore, estimates, final_return, write_csv, write_json

NAN = float("nan")
REFERENCES = {
    "easy": ReferenceScores("easy", random=0.0, human=10.0, world_record=None, minimal_actions=None),
    "hard": ReferenceScores("hard", random=-20.0, human=20.0, world_record=None, minimal_actions=None),
}


def test_values_are_split_at_top_level_commas() -> None:
    assert parse_values("optimizer.learning_rate=1e-3,3e-4") == ("optimizer.learning_rate", ["1e-3", "3e-4"])
    assert parse_values('env.tasks=["pong","breakout"],["qbert"],pong') == ("env.tasks", ['["pong","breakout"]', '["qbert"]', "pong"])
    assert parse_values("network.torso=shallow") == ("network.torso", ["shallow"])


def test_every_combination_has_its_own_name_and_folder() -> None:
    grid = combinations({"loss.entropy_cost": ["0.1", "0.2"], "optimizer.learning_rate": ["1e-3", "1e-4"]})
    assert [label(each) for each in grid] == [
        "entropy_cost=0.1, learning_rate=1e-3",
        "entropy_cost=0.1, learning_rate=1e-4",
        "entropy_cost=0.2, learning_rate=1e-3",
        "entropy_cost=0.2, learning_rate=1e-4",
    ]
    assert directory_name(grid[0]) == "entropy_cost=0.1_learning_rate=1e-3"
    assert combinations({}) == [{}]
    assert (label({}), directory_name({})) == ("as it is", "as-it-is")
    # A section is named if other sections have a setting of that name, swept or not.
    assert label({"loss.entropy_cost": "0.1", "value_scaling.kind": "popart"}) == "entropy_cost=0.1, value_scaling.kind=popart"
    assert label({"actor.port": "1", "learner.port": "2"}) == "actor.port=1, learner.port=2"
    awkward = [{"env.tasks": '["a/b"]'}, {"env.tasks": '["a b"]'}, {"env.tasks": "x" * 300}, {"env.tasks": "x" * 301}]
    names = [directory_name(each) for each in awkward]
    assert len(set(names)) == 4
    assert all("/" not in name and len(name) < 200 for name in names)


def test_the_final_return_is_that_of_the_end_of_the_curve() -> None:
    frames = np.array([0.0, 1e6, 2e6, 3e6, 4e6, 5e6, 8e6])
    assert final_return(frames, np.array([NAN, 1.0, 2.0, 3.0, 4.0, 5.0, 9.0])) == 9.0  # mean over the last million frames
    # For a short run it is the last quarter: beyond 3e5 frames.
    assert final_return(frames / 20, np.array([NAN, 1.0, 2.0, 3.0, 4.0, NAN, 8.0])) == 8.0
    assert final_return(np.array([0.0, 60.0, 76.0, 80.0, 100.0]), np.array([5.0, 1.0, 2.0, 4.0, 9.0])) == 5.0
    assert final_return(np.array([0.0, 10.0, 100.0]), np.array([NAN, 3.0, NAN])) == 3.0
    assert np.isnan(final_return(np.array([0.0, 10.0]), np.array([NAN, NAN])))


def scores(combination: int, returns: list[dict[str, float | None]]) -> list[RunScore]:
    return [RunScore(combination, seed, f"runs/{combination}/{seed}", 1e6, 60.0, each) for seed, each in enumerate(returns, start=1)]


def test_estimates_are_interquartile_means_over_seeds_and_tasks() -> None:
    one = scores(0, [{"easy": 1.0, "hard": 0.0}, {"easy": 3.0, "hard": 8.0}, {"easy": 8.0, "hard": -4.0}, {"easy": 4.0, "hard": None}])
    other = scores(1, [{"easy": 9.0, "hard": 10.0}])
    found = {(each.combination, each.what): each for each in estimates([*one, *other], REFERENCES)}
    assert list(found) == [(0, "easy"), (0, "hard"), (0, ALL_TASKS), (1, "easy"), (1, "hard"), (1, ALL_TASKS)]
    easy, hard, together = found[0, "easy"], found[0, "hard"], found[0, ALL_TASKS]
    assert (easy.runs, easy.interquartile_mean, easy.mean) == (4, 3.5, 4.0)  # the middle two of 1, 3, 4, 8
    assert (hard.runs, hard.interquartile_mean, hard.scores) == (3, pytest.approx(4 / 3), (0.0, 8.0, -4.0))
    # Human-normalised 0.1, 0.3, 0.8 and 0.5, 0.7, 0.4 of the three complete seeds, without the lowest and the highest.
    assert (together.runs, together.interquartile_mean) == (3, pytest.approx((0.3 + 0.4 + 0.5 + 0.7) / 4))
    assert (together.mean, together.scores) == (pytest.approx(1.4 / 3), ())
    assert found[1, "easy"].interval_95 is None
    assert [each.what for each in estimates(one, {})] == ["easy", "hard"]


def test_intervals_are_bootstraps_of_the_interquartile_mean() -> None:
    returns = [float(value) for value in (3, 1, 4, 1.5, 9, 2.6, 5, 3.5)]
    [found] = estimates(scores(0, [{"easy": value} for value in returns]), {})
    generator = np.random.default_rng(11)
    means = []
    for _ in range(20_000):
        drawn = sorted(returns[generator.integers(8)] for _ in range(8))
        means.append(sum(drawn[2:6]) / 4)
    assert found.interval_95 == pytest.approx(np.quantile(means, (0.025, 0.975)), abs=0.2)
    assert found.interval_95 is not None
    low, high = found.interval_95
    assert low < found.interquartile_mean < high


def test_results_are_written(tmp_path: Path) -> None:
    grid = [{"loss.entropy_cost": "0.1"}, {"loss.entropy_cost": "0.2"}]
    runs = [*scores(0, [{"easy": 1.0}, {"easy": None}]), *scores(1, [{"easy": 5.0}])]
    found = estimates(runs, {})
    write_json(tmp_path / "sweep.json", grid, runs, found, files=["catch"])
    written = json.loads((tmp_path / "sweep.json").read_text())
    assert written["files"] == ["catch"]
    first, second = written["combinations"]
    assert first["values"] == {"loss.entropy_cost": "0.1"}
    assert [run["returns"] for run in first["runs"]] == [{"easy": 1.0}, {"easy": None}]
    assert second["estimates"]["easy"]["interquartile_mean"] == 5.0
    write_csv(tmp_path / "sweep.csv", grid, runs)
    with (tmp_path / "sweep.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["loss.entropy_cost"], row["seed"], row["return"]) for row in rows] == [
        ("0.1", "1", "1.0"),
        ("0.1", "2", ""),
        ("0.2", "1", "5.0"),
    ]
