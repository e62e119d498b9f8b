"""Point estimates and their 95 % bootstrap intervals. Pure numpy; the same numbers and seed give the same interval.

The tasks are fixed; the runs of a task (seeds) and the games of a run are samples. So resampling is stratified: runs are resampled within
each task, and games within each drawn run (Agarwal et al. 2021, arXiv:2108.13264, who have one number for each run). If a task has only one
run, its interval covers the randomness of games but not that of training with another seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

Interval = tuple[float, float]
# The end points of a 95 % interval move by about 1 % of its width from one set of this many resamples to the next.
_RESAMPLES = 5_000
_PIECE = 1 << 20
"""Number of games drawn at a time: 8 MB."""


def standard_error(samples: FloatArray) -> float:
    """Return the standard error of the mean of ``samples`` [N]; NaN for a single sample."""
    return float(samples.std(ddof=1) / np.sqrt(len(samples))) if len(samples) > 1 else float("nan")


def resampled_run_scores(tasks: Sequence[Sequence[FloatArray]], *, seed: int = 0) -> FloatArray:
    """Resample runs within each task, and games within each drawn run.

    ``tasks`` holds the games of R runs of each of K tasks, [N] each, with any N. Returns mean returns of resampled runs, [B, R, K].
    """
    generator = np.random.default_rng(seed)
    num_runs = len(tasks[0])
    scores = np.empty((_RESAMPLES, num_runs, len(tasks)))
    for k, runs in enumerate(tasks):
        picks = generator.integers(num_runs, size=(_RESAMPLES, num_runs)) if num_runs > 1 else np.zeros((_RESAMPLES, 1), np.int64)
        for index, games in enumerate(runs):
            drawn = picks == index
            scores[..., k][drawn] = _resampled_means(games, int(drawn.sum()), generator)
    return scores


def percentiles(resampled: FloatArray) -> Interval:
    """Return the ends of the 95 % interval of a resampled statistic, [B]."""
    low, high = np.quantile(resampled, (0.025, 0.975))
    return float(low), float(high)


def _resampled_means(samples: FloatArray, size: int, generator: np.random.Generator) -> FloatArray:
    count = len(samples)
    rows = max(1, _PIECE // count)
    pieces = [
        samples[generator.integers(count, size=(min(rows, size - done), count), dtype=np.int32)].mean(axis=1)
        for done in range(0, size, rows)
    ]
    return np.concatenate(pieces) if pieces else np.empty(0)
