"""Smoothing of one curve, and the mean of several with its band. Pure numpy; the same runs give the same band."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray = NDArray[np.float64]

FEWEST_RUNS_TO_RESAMPLE = 5
"""From so many runs on, a band is a bootstrap interval of the mean. Of fewer it is the range of the runs: resampling three numbers gives
little else, and to call that a 95 % interval would be untrue. Neither leaves what the runs reached."""
_RESAMPLES = 2_000
_GRID_POINTS = 400  # more than a panel has pixels to tell apart
_COARSE_GRID_POINTS = 100
"""Where every resample sorts the scores of all tasks."""
_COARSE_RESAMPLES = 500


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a panel, G points. ``low`` and ``high`` bound its band; they are NaN where there is none (one run)."""

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
    """Mean over repeats with its band, each repeat (x [P], values [P]) with its own P.

    The band is the range of the runs, and from `FEWEST_RUNS_TO_RESAMPLE` runs on the 95 % percentile bootstrap of their mean.
    Runs are interpolated linearly onto one grid over the range that all of them cover: beyond it the mean would jump as runs drop out.
    None where they share no range.
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
    if count < FEWEST_RUNS_TO_RESAMPLE:
        low, high = values.min(axis=0), values.max(axis=0)
    else:
        # How often each run is drawn, [B, R]: a resample's mean is a weighted one.
        draws = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=_RESAMPLES)
        low, high = np.quantile(draws @ values / count, (0.025, 0.975), axis=0)
    return Curve(grid, values.mean(axis=0), low, high, num_runs=count)


def interquartile_mean_curve(runs: Sequence[tuple[FloatArray, FloatArray]]) -> Curve | None:
    """Interquartile mean over the scores of all tasks of all runs (Agarwal et al. 2021, arXiv:2108.13264), with its band.

    Args:
        runs: of each (x [P], scores [P, K]), NaN while a task has none; all with the same K tasks. A point counts once all its tasks do.

    Returns:
        The curve, or None where no run has such a point, or they share no range. Its band is the 95 % percentile bootstrap that draws
        runs anew within each task; of fewer than `FEWEST_RUNS_TO_RESAMPLE` runs it lies between the lowest and the highest run.

    """
    known = []
    for x, scores in runs:
        whole = np.isfinite(x) & np.isfinite(scores).all(axis=1)
        if whole.any():
            known.append((x[whole], scores[whole]))
    if len(known) <= 1:
        return single_curve(known[0][0], _interquartile_mean(known[0][1])) if known else None
    grid = _common_grid([x for x, _ in known], _COARSE_GRID_POINTS)
    if grid is None:
        return None
    # [R, G, K]
    scores = np.stack([np.stack([np.interp(grid, x, own[:, task]) for task in range(own.shape[1])], axis=-1) for x, own in known])
    count, num_points, num_tasks = scores.shape
    mean = _interquartile_mean(scores.transpose(1, 0, 2).reshape(num_points, -1))
    if count < FEWEST_RUNS_TO_RESAMPLE:
        each = np.concatenate([_interquartile_mean(scores), mean[None]])
        return Curve(grid, mean, each.min(axis=0), each.max(axis=0), num_runs=count)
    generator = np.random.default_rng(0)
    tasks = np.arange(num_tasks)
    resampled = np.stack(
        [
            _interquartile_mean(
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


def _interquartile_mean(values: FloatArray) -> FloatArray:
    """Mean over the last axis without its lowest and its highest quarter, rounded down: [..., N] -> [...]."""
    ordered = np.sort(values, axis=-1)
    cut = ordered.shape[-1] // 4
    return np.asarray(ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1))
