"""Point estimates and their 95 % bootstrap intervals. Pure numpy; the same numbers and seed give the same interval.

The tasks are given; runs of a task (seeds) and the games of a run are samples. So resampling is stratified: runs are drawn anew within
each task, and games within each drawn run (Agarwal et al. 2021, arXiv:2108.13264, who have one number for each run). With one run of a
task its interval tells of the luck of games alone, and not of what another seed would have learned.
"""

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
_PIECE = 1 << 20
"""Games drawn at one time: 8 MB."""


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
        statistic: resampled means [B, K] -> [B].
        seed: of the resampling.

    """
    return percentiles(statistic(resampled_run_scores([[games] for games in strata], seed=seed)[:, 0, :]))


def resampled_run_scores(tasks: Sequence[Sequence[FloatArray]], *, seed: int = 0) -> FloatArray:
    """Draw runs anew within each task, and games within each of them.

    ``tasks``: the games of R runs of each of K tasks, [N] each, N of any size. Returns mean returns of resampled runs, [B, R, K].
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
    """Ends of the 95 % interval of a statistic that was resampled, [B]."""
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
