"""Learning curves in windows of env frames, and means over seeds with their 95 % bootstrap intervals."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from herd.evaluation.intervals import percentiles, resampled_run_scores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

_RESAMPLES = 2_000
"""Number of resamples: the ends of an interval vary by 1 to 2 % of its width between sets of this size."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and its 95 % interval."""

    mean: float
    low: float
    high: float


def print_estimates(rows: Mapping[str, Mapping[str, Estimate]]) -> None:
    """Print a line for each figure: its estimates by name."""
    for figure, row in rows.items():
        print(f"{figure:32}" + "".join(f"  {name} {one.mean:+.3f} [{one.low:+.3f}, {one.high:+.3f}]" for name, one in row.items()))


def estimates_as_json(rows: Mapping[str, Mapping[str, Estimate]]) -> dict[str, Any]:
    """Return the same for a file."""
    return {figure: {name: asdict(one) for name, one in row.items()} for figure, row in rows.items()}


def windowed(env_frames: FloatArray, returns: FloatArray, *, total: float, windows: int) -> FloatArray:
    """Return the mean of the points in each of ``windows`` equal parts of (0, total], [P] -> [G]; NaN points are ignored.

    A window without points, which occurs on a fast machine, is interpolated between its neighbours.
    """
    present = np.isfinite(returns) & (env_frames > 0)
    if not present.any():
        raise ValueError("a run without a finished game has no curve")
    # The last point is up to one batch beyond the end.
    window = np.clip(np.ceil(env_frames[present] / total * windows).astype(np.int64) - 1, 0, windows - 1)
    counts = np.bincount(window, minlength=windows)
    sums = np.bincount(window, weights=returns[present], minlength=windows)
    filled = np.flatnonzero(counts)
    return np.interp(np.arange(windows), filled, sums[filled] / counts[filled])


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of one number per seed, with a percentile bootstrap over seeds."""
    samples = np.array(values, np.float64)
    return Estimate(float(samples.mean()), *percentiles(resampled_run_scores([[samples]]).ravel()))


def curve_estimates(curves: FloatArray, *, seed: int = 0) -> tuple[Estimate, ...]:
    """Return G estimates from [N, G]. Whole curves are resampled; the intervals are pointwise."""
    count = len(curves)
    shares = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=_RESAMPLES) / count
    lows, highs = np.quantile(shares @ curves, (0.025, 0.975), axis=0)
    return tuple(Estimate(float(mean), float(low), float(high)) for mean, low, high in zip(curves.mean(axis=0), lows, highs, strict=True))
