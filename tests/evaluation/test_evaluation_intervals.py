import random

import numpy as np
import pytest
from numpy.typing import NDArray

from herd.components.suites.scores import ReferenceScores, aggregates
from herd.evaluation.intervals import Interval, percentiles, resampled_run_scores, standard_error


def mean_interval(samples: NDArray[np.float64], seed: int = 0) -> Interval:
    """The interval of one run of one task."""
    return percentiles(resampled_run_scores([[samples]], seed=seed).ravel())


def test_for_many_games_the_interval_is_the_normal_one() -> None:
    samples = np.random.default_rng(1).normal(100.0, 20.0, size=400)
    low, high = mean_interval(samples)
    error = standard_error(samples)
    assert error == pytest.approx(samples.std(ddof=1) / 20)
    assert low == pytest.approx(samples.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(samples.mean() + 1.96 * error, abs=0.15 * error)
    assert (low, high) == mean_interval(samples)
    assert (low, high) != mean_interval(samples, seed=1)


def slow_resample(tasks: list[list[list[float]]], draw: random.Random) -> list[list[float]]:
    """One bootstrap sample, drawn game by game: run scores for each task."""
    scores = []
    for runs in tasks:
        drawn = [runs[draw.randrange(len(runs))] for _ in runs]
        scores.append([sum(games[draw.randrange(len(games))] for _ in games) / len(games) for games in drawn])
    return scores


def slow_statistic(name: str, scores: list[list[float]], tasks: list[ReferenceScores]) -> float:
    normalised = [[(s - t.random) / (t.human - t.random) for s in runs] for runs, t in zip(scores, tasks, strict=True)]
    means = sorted(sum(runs) / len(runs) for runs in normalised)
    if name == "median":
        return means[len(means) // 2]
    if name == "mean_capped":
        return sum(min(mean, 1.0) for mean in means) / len(means)
    pooled = sorted(value for runs in normalised for value in runs)
    cut = len(pooled) // 4
    return sum(pooled[cut : len(pooled) - cut]) / (len(pooled) - 2 * cut)


def test_intervals_of_many_runs_agree_with_a_slow_bootstrap() -> None:
    # 5 tasks of 3 runs, with different means and spreads of games; some tasks lie on both sides of the cap of 1.
    generator = np.random.default_rng(3)
    references = [ReferenceScores(str(k), 10.0 * k, 10.0 * k + 50.0, None, None) for k in range(5)]
    tasks = [
        [generator.normal(10.0 * k + 50.0 * level, 8.0 + 4.0 * k, size=5 + r) for r, level in enumerate((0.4 + 0.2 * k, 0.9, 1.3))]
        for k in range(5)
    ]
    fast = aggregates(resampled_run_scores(tasks, seed=1), references)
    draw = random.Random(4)
    slow = [slow_resample([[games.tolist() for games in runs] for runs in tasks], draw) for _ in range(10_000)]
    for name in ("median", "mean_capped", "interquartile_mean"):
        by_hand = [slow_statistic(name, scores, references) for scores in slow]
        low, high = percentiles(np.array(by_hand))
        assert percentiles(fast[name]) == pytest.approx((low, high), abs=0.05 * (high - low)), name
        assert fast[name].mean() == pytest.approx(np.mean(by_hand), abs=float(0.08 * np.std(by_hand))), name
