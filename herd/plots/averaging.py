"""Smoothing of one curve, and the mean of several with its 95 % interval. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray = NDArray[np.float64]

# Two-sided 95 % quantiles of Student's t for 1..30 degrees of freedom; beyond that the normal's 1.96 is within 2 %. The t interval and
# not the bootstrap, because 3 to 5 seeds are the rule and resampling 3 numbers gives intervals far too narrow.
_T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
# Two runs give an interval of 12.7 standard errors: wider than the panel, and telling less than the two lines themselves.
_FEWEST_RUNS_FOR_AN_INTERVAL = 3
_GRID_POINTS = 400  # more than a panel has pixels to tell apart


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a panel, G points. ``low`` and ``high`` are NaN where there is no interval (fewer than three runs)."""

    x: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    num_runs: int

    @property
    def has_interval(self) -> bool:
        """Whether ``low`` and ``high`` are known."""
        return self.num_runs >= _FEWEST_RUNS_FOR_AN_INTERVAL


def smoothed(values: FloatArray, window: int) -> FloatArray:
    """Mean of the last ``window`` points up to each one: [P] -> [P].

    Trailing, so that no point shows what was learned after it. NaN points are left out of the means and stay NaN.
    """
    if window < 1:
        raise ValueError(f"a smoothing window has at least one point, not {window}")
    present = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(present, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(present)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    in_window = counts[ends] - counts[starts]
    means = (sums[ends] - sums[starts]) / np.maximum(in_window, 1)
    return np.where(present, means, np.nan)


def single_curve(x: FloatArray, values: FloatArray) -> Curve:
    """One run as it is, without its NaN points."""
    present = np.isfinite(values) & np.isfinite(x)
    nothing = np.full(int(present.sum()), np.nan)
    return Curve(x[present], values[present], nothing, nothing, num_runs=1)


def mean_curve(runs: Sequence[tuple[FloatArray, FloatArray]]) -> Curve | None:
    """Mean and 95 % t interval over repeats, each (x [P], values [P]) with its own P.

    Runs are interpolated linearly onto one grid over the range that all of them cover: beyond it the mean would jump as runs drop out.
    None where they share no range.
    """
    curves = [single_curve(x, values) for x, values in runs]
    curves = [curve for curve in curves if len(curve.x)]
    if not curves:
        return None
    if len(curves) == 1:
        return curves[0]
    start = max(curve.x[0] for curve in curves)
    end = min(curve.x[-1] for curve in curves)
    if start > end:
        return None
    grid = np.linspace(start, end, _GRID_POINTS) if end > start else np.array([start])
    values = np.stack([np.interp(grid, curve.x, curve.mean) for curve in curves])
    count = len(curves)
    mean = values.mean(axis=0)
    if count < _FEWEST_RUNS_FOR_AN_INTERVAL:
        return Curve(grid, mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan), num_runs=count)
    half_width = t_quantile_95(count - 1) * values.std(axis=0, ddof=1) / np.sqrt(count)
    return Curve(grid, mean, mean - half_width, mean + half_width, num_runs=count)


def t_quantile_95(degrees_of_freedom: int) -> float:
    """Half width of the central 95 % of Student's t."""
    return _T_95[degrees_of_freedom - 1] if degrees_of_freedom <= len(_T_95) else 1.96
