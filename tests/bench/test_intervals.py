"""Windows of a curve and confidence intervals over seeds, computed by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from benchmarks.intervals import curve_estimates, estimate, windowed

NAN = float("nan")


def test_a_curve_holds_the_mean_of_each_window() -> None:
    frames = np.array([0.0, 5.0, 10.0, 11.0, 20.0, 31.0, 40.0, 43.0])
    returns = np.array([9.0, 1.0, 3.0, NAN, 5.0, 8.0, 8.0, 2.0])
    # (0, 10]: 1 and 3; (10, 20]: 5; (20, 30]: empty, so interpolated between its neighbours; (30, 40] and everything beyond: 8, 8, 2.
    assert windowed(frames, returns, total=40.0, windows=4).tolist() == [2.0, 5.0, 5.5, 6.0]
    with pytest.raises(ValueError, match="no curve"):
        windowed(frames[:2], np.array([1.0, NAN]), total=40.0, windows=4)


def test_the_interval_agrees_with_all_resamples() -> None:
    """Three numbers have 27 resamples, so the bootstrap's interval is known exactly."""
    values = [0.0, 3.0, 9.0]
    means = np.sort([np.mean(three) for three in product(values, repeat=3)])
    exact = np.quantile(means.repeat(1000), (0.025, 0.975))
    found = estimate(values)
    assert (found.mean, found.low, found.high) == pytest.approx((4.0, *exact))
    assert (found.low, found.high) == (0.0, 9.0)  # each end has a probability of 1 in 27, more than 2.5 %


def test_each_point_of_a_curve_has_its_own_interval() -> None:
    level, spread = curve_estimates(np.array([[2.0, 0.0], [2.0, 1.0]]))
    assert (level.mean, level.low, level.high) == (2.0, 2.0, 2.0)
    assert (spread.mean, spread.low, spread.high) == (0.5, 0.0, 1.0)
