"""Results of runs and ablations of the DiCE comparison, with 95 % bootstrap intervals over seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from herd.evaluation.intervals import mean_interval, stratified_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

_RESAMPLES = 2_000
"""Number of resamples: the ends of an interval vary by 1 to 2 % of its width between sets of this size."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of one seed of one ablation."""

    ablation: str
    seed: int
    curve: tuple[float, ...]
    """[G], mean return of the games that ended in each of G equal windows of env frames."""
    area: float
    """Mean of the curve: the return per game over the whole run, at all temperatures."""
    frames_to_level: float | None
    """Env frames until the level was reached; None if it was not."""
    final: float
    """Mean return of whole games of the last checkpoint, played as by ``herd evaluate``."""
    final_greedy: float
    """The same with the most probable action at every step, so that temperatures do not matter."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The results of one ablation."""

    ablation: str
    num_seeds: int
    final: Estimate
    final_greedy: Estimate
    area: Estimate
    frames_to_level: Estimate
    """Frames to the level. A run that did not reach it counts with all its frames, so the mean may be too low but never too high."""
    num_reached: int
    curve: tuple[Estimate, ...]


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


def frames_to_level(curve: FloatArray, level: float, *, total: float) -> float | None:
    """Return the end of the first window whose mean return is at least ``level``, in env frames; None if there is none."""
    reached = np.flatnonzero(curve >= level)
    return None if len(reached) == 0 else float((reached[0] + 1) * total / len(curve))


def summarise(results: Sequence[RunResult], *, total: float) -> Summary:
    names = {result.ablation for result in results}
    if len(names) != 1:
        raise ValueError(f"results of one ablation, not of {len(names)}")
    reached = [result.frames_to_level for result in results]
    return Summary(
        ablation=names.pop(),
        num_seeds=len(results),
        final=estimate([result.final for result in results]),
        final_greedy=estimate([result.final_greedy for result in results]),
        area=estimate([result.area for result in results]),
        frames_to_level=estimate([total if frames is None else frames for frames in reached]),
        num_reached=sum(frames is not None for frames in reached),
        curve=curve_estimates(np.array([result.curve for result in results])),
    )


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of one number per seed, with a percentile bootstrap over seeds."""
    samples = np.array(values, np.float64)
    return Estimate(float(samples.mean()), *mean_interval(samples))


def difference(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """Return the mean of ``first`` minus the mean of ``second``; the seeds of each side are resampled separately."""
    sides = [np.array(first, np.float64), np.array(second, np.float64)]
    return Estimate(float(sides[0].mean() - sides[1].mean()), *stratified_interval(sides, lambda means: means[:, 0] - means[:, 1]))


def curve_estimates(curves: FloatArray, *, seed: int = 0) -> tuple[Estimate, ...]:
    """Return G estimates from [N, G]. Whole curves are resampled; the intervals are pointwise."""
    count = len(curves)
    shares = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=_RESAMPLES) / count
    lows, highs = np.quantile(shares @ curves, (0.025, 0.975), axis=0)
    return tuple(Estimate(float(mean), float(low), float(high)) for mean, low, high in zip(curves.mean(axis=0), lows, highs, strict=True))
