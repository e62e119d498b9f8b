import numpy as np
import pytest

from herd.evaluation.intervals import mean_interval, standard_error, stratified_interval


def test_the_interval_of_a_mean_is_the_normal_one_for_many_games() -> None:
    samples = np.random.default_rng(1).normal(100.0, 20.0, size=400)
    low, high = mean_interval(samples)
    error = standard_error(samples)
    assert error == pytest.approx(samples.std(ddof=1) / 20)
    assert low == pytest.approx(samples.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(samples.mean() + 1.96 * error, abs=0.15 * error)
    assert (low, high) == mean_interval(samples)
    assert (low, high) != mean_interval(samples, seed=1)


def test_nearly_all_intervals_hold_the_true_mean() -> None:
    generator = np.random.default_rng(2)
    intervals = [mean_interval(generator.exponential(size=60), seed=seed) for seed in range(200)]
    covered = np.mean([low <= 1.0 <= high for low, high in intervals])
    assert 0.88 <= covered <= 0.98


def test_one_game_has_no_spread() -> None:
    assert mean_interval(np.array([3.0])) == (3.0, 3.0)
    assert np.isnan(standard_error(np.array([3.0])))


def test_resampling_stays_within_tasks() -> None:
    # Between the tasks lie 1000 points, within each none: nothing is uncertain. Pooled games would say otherwise.
    strata = [np.full(20, 0.0), np.full(5, 1000.0)]
    assert stratified_interval(strata, lambda means: means.mean(axis=1)) == (500.0, 500.0)


def test_a_statistic_gets_every_tasks_mean() -> None:
    strata = [np.array([1.0, 1.0]), np.array([4.0]), np.array([7.0, 7.0, 7.0])]
    assert stratified_interval(strata, lambda means: means @ np.array([100.0, 10.0, 1.0])) == (147.0, 147.0)
