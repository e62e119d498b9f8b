"""What the DiCE comparison says of a run, and of the runs of one ablation: plain numbers with 95 % bootstrap intervals over seeds."""

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
"""For each point of a curve; an interval's end moves by 1 to 2 % of its width from one set of so many to the next."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """One seed of one ablation."""

    ablation: str
    seed: int
    curve: tuple[float, ...]
    """[G], mean return of the games that ended in each of G equal windows of env frames."""
    area: float
    """Mean of the curve: the return per game over the whole run, all temperatures that were played under."""
    frames_to_level: float | None
    """Env frames, None where the level was not reached."""
    final: float
    """Mean return of whole games that the last checkpoint plays as ``herd evaluate`` does."""
    final_greedy: float
    """Likewise, with the most probable action at every step: no temperature has a say in it."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Summary:
    """One ablation."""

    ablation: str
    num_seeds: int
    final: Estimate
    final_greedy: Estimate
    area: Estimate
    frames_to_level: Estimate
    """A run that never reached the level counts all its frames: the mean is too low where some did not, never too high."""
    num_reached: int
    curve: tuple[Estimate, ...]
    """[G]."""


def windowed(env_frames: FloatArray, returns: FloatArray, *, total: float, windows: int) -> FloatArray:
    """Mean of the points in each of ``windows`` equal parts of (0, total], [P] -> [G]; NaN points count nowhere.

    A window without a point, which a fast machine leaves, lies on the line between its neighbours.
    """
    present = np.isfinite(returns) & (env_frames > 0)
    if not present.any():
        raise ValueError("a run without a finished game has no curve")
    # The last point lies a batch beyond the end.
    window = np.clip(np.ceil(env_frames[present] / total * windows).astype(np.int64) - 1, 0, windows - 1)
    counts = np.bincount(window, minlength=windows)
    sums = np.bincount(window, weights=returns[present], minlength=windows)
    filled = np.flatnonzero(counts)
    return np.interp(np.arange(windows), filled, sums[filled] / counts[filled])


def frames_to_level(curve: FloatArray, level: float, *, total: float) -> float | None:
    """End of the first window whose mean return is at least ``level``, in env frames; None where there is none."""
    reached = np.flatnonzero(curve >= level)
    return None if len(reached) == 0 else float((reached[0] + 1) * total / len(curve))


def summarise(results: Sequence[RunResult], *, total: float) -> Summary:
    """Sum up the seeds of one ablation."""
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
    """Mean of one number per seed, with the percentile bootstrap over seeds."""
    samples = np.array(values, np.float64)
    return Estimate(float(samples.mean()), *mean_interval(samples))


def difference(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """Mean of ``first`` minus mean of ``second``; each side's seeds are resampled by themselves."""
    sides = [np.array(first, np.float64), np.array(second, np.float64)]
    return Estimate(float(sides[0].mean() - sides[1].mean()), *stratified_interval(sides, lambda means: means[:, 0] - means[:, 1]))


def curve_estimates(curves: FloatArray, *, seed: int = 0) -> tuple[Estimate, ...]:
    """[N, G] -> G estimates; a resample takes whole curves, and each point's interval stands for itself."""
    count = len(curves)
    shares = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=_RESAMPLES) / count
    lows, highs = np.quantile(shares @ curves, (0.025, 0.975), axis=0)
    return tuple(Estimate(float(mean), float(low), float(high)) for mean, low, high in zip(curves.mean(axis=0), lows, highs, strict=True))
