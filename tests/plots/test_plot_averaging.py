import numpy as np
import pytest

from herd.plots.averaging import mean_curve, single_curve, smoothed, t_quantile_95


def test_smoothing_looks_back_only_and_leaves_gaps() -> None:
    values = np.array([np.nan, 2.0, 4.0, np.nan, 9.0, 1.0])
    np.testing.assert_allclose(smoothed(values, 3), [np.nan, 2.0, 3.0, np.nan, 6.5, 5.0])
    np.testing.assert_array_equal(smoothed(values, 1), values)
    with pytest.raises(ValueError, match="at least one point"):
        smoothed(values, 0)


def test_mean_and_interval_are_those_of_the_textbook() -> None:
    # Three runs with their own x; linear, so that interpolation is exact: at x the values are x + 1, 2x, 3x - 4.
    runs = [
        (np.array([0.0, 10.0]), np.array([1.0, 11.0])),
        (np.array([2.0, 5.0, 12.0]), np.array([4.0, 10.0, 24.0])),
        (np.array([1.0, 8.0]), np.array([-1.0, 20.0])),
    ]
    curve = mean_curve(runs)
    assert curve is not None
    assert curve.num_runs == 3
    assert (curve.x[0], curve.x[-1]) == (2.0, 8.0)  # what all three have covered
    np.testing.assert_allclose(curve.mean, 2 * curve.x - 1)
    at_end = np.array([9.0, 16.0, 20.0])
    half_width = 4.303 * at_end.std(ddof=1) / np.sqrt(3)
    np.testing.assert_allclose([curve.low[-1], curve.high[-1]], [15 - half_width, 15 + half_width])


def test_two_runs_have_a_mean_and_no_interval() -> None:
    curve = mean_curve([(np.array([0.0, 1.0]), np.array([0.0, 2.0])), (np.array([0.0, 1.0]), np.array([4.0, 6.0]))])
    assert curve is not None
    np.testing.assert_allclose(curve.mean[[0, -1]], [2.0, 4.0])
    assert not curve.has_interval
    assert np.isnan(curve.low).all()


def test_a_run_without_scores_yet_does_not_count() -> None:
    x = np.array([0.0, 1.0])
    curve = mean_curve([(x, np.array([3.0, 5.0])), (x, np.full(2, np.nan))])
    assert curve is not None
    assert curve.num_runs == 1
    assert curve.mean.tolist() == [3.0, 5.0]
    assert mean_curve([(x, np.full(2, np.nan))]) is None


def test_runs_that_share_no_range_have_no_mean() -> None:
    assert mean_curve([(np.array([0.0, 1.0]), np.zeros(2)), (np.array([2.0, 3.0]), np.zeros(2))]) is None


def test_single_curve_drops_gaps() -> None:
    curve = single_curve(np.array([1.0, 2.0, 3.0]), np.array([np.nan, 5.0, 6.0]))
    assert (curve.x.tolist(), curve.mean.tolist(), curve.num_runs) == ([2.0, 3.0], [5.0, 6.0], 1)


def test_t_quantiles() -> None:
    assert [t_quantile_95(n) for n in (1, 10, 30, 31)] == [12.706, 2.228, 2.042, 1.96]
