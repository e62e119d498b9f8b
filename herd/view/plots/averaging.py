"""Smoothing of a curve, and the mean of several curves with its band. Pure numpy; the same runs give the same band."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from herd.components.suites.scores import interquartile_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray = NDArray[np.float64]

MIN_RUNS_TO_RESAMPLE = 5
"""From this number of runs on, a band is a bootstrap interval of the mean. With fewer runs it is their range, because resampling three
numbers does not give a 95 % interval. Neither goes beyond the range of the runs."""
_RESAMPLES = 2_000
_GRID_POINTS = 400  # more than a panel has distinguishable pixels
_COARSE_GRID_POINTS = 100
"""Used where every resample sorts the scores of all tasks."""
_COARSE_RESAMPLES = 500


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a panel with G points. ``low`` and ``high`` are the limits of its band; they are NaN if there is none (one run)."""

    x: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    num_runs: int

    @property
    def has_band(self) -> bool:
        """Whether ``low`` and ``high`` are known."""
        return self.num_runs > 1


def smoothed(values: FloatArray, window: int) -> FloatArray:
    """Return the trailing mean of ``window`` points: [P] -> [P].

    It is trailing so that no point contains later results. NaN points are excluded from the means and stay NaN.
    """
    if window < 1:
        raise ValueError(f"a smoothing window needs at least one point, not {window}")
    present = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(present, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(present)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    in_window = counts[ends] - counts[starts]
    means = (sums[ends] - sums[starts]) / np.maximum(in_window, 1)
    return np.where(present, means, np.nan)


def single_curve(x: FloatArray, values: FloatArray) -> Curve:
    """Return the curve of one run without its NaN points."""
    present = np.isfinite(values) & np.isfinite(x)
    nothing = np.full(int(present.sum()), np.nan)
    return Curve(x[present], values[present], nothing, nothing, num_runs=1)


def mean_curve(runs: Sequence[tuple[FloatArray, FloatArray]]) -> Curve | None:
    """Return the mean over repeats with its band; each repeat (x [P], values [P]) has its own P.

    The band is the range of the runs or, from `MIN_RUNS_TO_RESAMPLE` runs on, the 95 % percentile bootstrap interval of their mean.
    Runs are interpolated linearly onto one grid over the range that all of them cover, because the mean would jump where a run ends.
    None if they share no range.
    """
    curves = [single_curve(x, values) for x, values in runs]
    curves = [curve for curve in curves if len(curve.x)]
    if len(curves) <= 1:
        return curves[0] if curves else None
    grid = _common_grid([curve.x for curve in curves], _GRID_POINTS)
    if grid is None:
        return None
    values = np.stack([np.interp(grid, curve.x, curve.mean) for curve in curves])
    count = len(curves)
    if count < MIN_RUNS_TO_RESAMPLE:
        low, high = values.min(axis=0), values.max(axis=0)
    else:
        # How often each run is drawn, [B, R]: the mean of a resample is a weighted mean.
        draws = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=_RESAMPLES)
        low, high = np.quantile(draws @ values / count, (0.025, 0.975), axis=0)
    return Curve(grid, values.mean(axis=0), low, high, num_runs=count)


def interquartile_mean_curve(runs: Sequence[tuple[FloatArray, FloatArray]]) -> Curve | None:
    """Return the interquartile mean over the scores of all tasks of all runs (Agarwal et al. 2021, arXiv:2108.13264), with its band.

    Args:
        runs: (x [P], scores [P, K]) of each run, NaN while a task has no score; all runs have the same K tasks. Only points at which all
            tasks have scores count.

    Returns:
        The curve, or None if no run has such a point or the runs share no range. Its band is the 95 % percentile bootstrap interval that
        resamples runs within each task; with fewer than `MIN_RUNS_TO_RESAMPLE` runs it is the range of the runs.

    """
    known = []
    for x, scores in runs:
        whole = np.isfinite(x) & np.isfinite(scores).all(axis=1)
        if whole.any():
            known.append((x[whole], scores[whole]))
    if len(known) <= 1:
        return single_curve(known[0][0], interquartile_mean(known[0][1])) if known else None
    grid = _common_grid([x for x, _ in known], _COARSE_GRID_POINTS)
    if grid is None:
        return None
    # [R, G, K]
    scores = np.stack([np.stack([np.interp(grid, x, own[:, task]) for task in range(own.shape[1])], axis=-1) for x, own in known])
    count, num_points, num_tasks = scores.shape
    mean = interquartile_mean(scores.transpose(1, 0, 2).reshape(num_points, -1))
    if count < MIN_RUNS_TO_RESAMPLE:
        each = np.concatenate([interquartile_mean(scores), mean[None]])
        return Curve(grid, mean, each.min(axis=0), each.max(axis=0), num_runs=count)
    generator = np.random.default_rng(0)
    tasks = np.arange(num_tasks)
    resampled = np.stack(
        [
            interquartile_mean(
                scores[generator.integers(count, size=(count, num_tasks)), :, tasks].transpose(2, 0, 1).reshape(num_points, -1)
            )
            for _ in range(_COARSE_RESAMPLES)
        ]
    )
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)
    return Curve(grid, mean, low, high, num_runs=count)


def _common_grid(axes: Sequence[FloatArray], num_points: int) -> FloatArray | None:
    start, end = max(x[0] for x in axes), min(x[-1] for x in axes)
    if start > end:
        return None
    return np.linspace(start, end, num_points) if end > start else np.array([start])
