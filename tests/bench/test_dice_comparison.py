"""The DiCE comparison's numbers, by hand, and its runs: whole or not there."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks.dice_comparison import differences_of, print_tables
from benchmarks.dice_picture import draw
from benchmarks.dice_statistics import RunResult, curve_estimates, difference, estimate, frames_to_level, summarise, windowed

NAN = float("nan")


def result(ablation: str, seed: int, final: float, frames: float | None) -> RunResult:
    return RunResult(ablation, seed, (0.0, final), final / 2, frames, final, final + 0.1)


def test_a_curve_is_the_mean_of_the_points_in_each_window() -> None:
    frames = np.array([0.0, 5.0, 10.0, 11.0, 20.0, 31.0, 40.0, 43.0])
    returns = np.array([9.0, 1.0, 3.0, NAN, 5.0, 8.0, 8.0, 2.0])
    # (0, 10]: 1 and 3; (10, 20]: 5; (20, 30]: nothing, so between its neighbours; (30, 40] and what lies beyond the end: 8, 8, 2.
    assert windowed(frames, returns, total=40.0, windows=4).tolist() == [2.0, 5.0, 5.5, 6.0]
    with pytest.raises(ValueError, match="no curve"):
        windowed(frames[:2], np.array([1.0, NAN]), total=40.0, windows=4)


def test_a_level_is_reached_at_the_end_of_the_first_window_there() -> None:
    curve = np.array([0.1, 0.7, 0.6, 0.9])
    assert frames_to_level(curve, 0.7, total=1000.0) == 500.0
    assert frames_to_level(curve, 0.8, total=1000.0) == 1000.0
    assert frames_to_level(curve, 0.95, total=1000.0) is None


def test_an_interval_is_that_of_all_resamples() -> None:
    """Of three numbers there are 27 resamples: the bootstrap's interval is known exactly."""
    values = [0.0, 3.0, 9.0]
    means = np.sort([np.mean(three) for three in product(values, repeat=3)])
    exact = np.quantile(means.repeat(1000), (0.025, 0.975))
    found = estimate(values)
    assert (found.mean, found.low, found.high) == pytest.approx((4.0, *exact))
    assert (found.low, found.high) == (0.0, 9.0)  # each end has a probability of 1 in 27, more than 2.5 %


def test_a_difference_resamples_both_sides() -> None:
    first, second = [0.0, 1.0], [10.0, 30.0]
    # Means 0, 1/2, 1/2, 1 and 10, 20, 20, 30: of 16 pairs the two most extreme have a probability of 1 in 16 each.
    found = difference(first, second)
    assert (found.mean, found.low, found.high) == (0.5 - 20.0, 0.0 - 30.0, 1.0 - 10.0)


def test_each_point_of_a_curve_has_its_own_interval() -> None:
    level, spread = curve_estimates(np.array([[2.0, 0.0], [2.0, 1.0]]))
    assert (level.mean, level.low, level.high) == (2.0, 2.0, 2.0)
    assert (spread.mean, spread.low, spread.high) == (0.5, 0.0, 1.0)


def test_a_run_that_never_gets_there_counts_all_its_frames() -> None:
    summary = summarise([result("dice", 1, 0.8, 300.0), result("dice", 2, 0.4, None)], total=1000.0)
    assert (summary.ablation, summary.num_seeds, summary.num_reached) == ("dice", 2, 1)
    assert summary.frames_to_level.mean == 650.0
    assert summary.final.mean == pytest.approx(0.6)
    assert summary.final_greedy.mean == pytest.approx(0.7)
    assert summary.area.mean == pytest.approx(0.3)
    assert [one.mean for one in summary.curve] == pytest.approx([0.0, 0.6])
    with pytest.raises(ValueError, match="one ablation, not of 2"):
        summarise([result("dice", 1, 0.8, None), result("random", 1, 0.8, None)], total=1000.0)


def test_table_and_picture_show_every_ablation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = {name: [result(name, seed, base + seed / 100, None) for seed in range(3)] for name, base in (("dice", 0.9), ("random", 0.4))}
    summaries = [summarise(of, total=1000.0) for of in results.values()]
    differences = differences_of(results)
    assert list(differences) == ["dice - random"]
    assert differences["dice - random"]["final"].mean == pytest.approx(0.5)
    print_tables(summaries, differences, 1000.0)
    printed = capsys.readouterr().out
    assert "0.91 (0.90 to 0.92)" in printed
    assert "0 of 3" in printed
    draw(summaries, results, tmp_path / "picture.png", total=1000.0, level=0.7)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
