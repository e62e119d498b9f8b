"""Point estimates and their 95 % bootstrap intervals. Pure numpy; the same numbers and seed give the same interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

Interval = tuple[float, float]
# The end points of a 95 % interval move by about 1 % of its width from one set of this many resamples to the next.
_RESAMPLES = 5_000


def standard_error(samples: FloatArray) -> float:
    """Of the mean of ``samples`` [N]; NaN for one sample, which says nothing of its spread."""
    return float(samples.std(ddof=1) / np.sqrt(len(samples))) if len(samples) > 1 else float("nan")


def mean_interval(samples: FloatArray, *, seed: int = 0) -> Interval:
    """Percentile bootstrap of the mean of ``samples`` [N]."""
    return stratified_interval([samples], lambda means: means[:, 0], seed=seed)


def stratified_interval(strata: Sequence[FloatArray], statistic: Callable[[FloatArray], FloatArray], *, seed: int = 0) -> Interval:
    """Bootstrap of a statistic of K tasks' means, resampling within each task: the tasks are given, only their games are a sample.

    Args:
        strata: K arrays of games, [N_k].
        statistic: resampled means [R, K] -> [R].
        seed: of the resampling.

    """
    generator = np.random.default_rng(seed)
    means = np.stack([_resampled_means(samples, generator) for samples in strata], axis=1)
    low, high = np.quantile(statistic(means), (0.025, 0.975))
    return float(low), float(high)


def _resampled_means(samples: FloatArray, generator: np.random.Generator) -> FloatArray:
    # Counts of each sample in a resample are multinomial: [R, N] @ [N] instead of gathering R x N games.
    count = len(samples)
    shares = generator.multinomial(count, np.full(count, 1.0 / count), size=_RESAMPLES)
    means: FloatArray = (shares @ samples) / count
    return means
