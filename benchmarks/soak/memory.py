"""Tests whether processes grow, although faults replace them all the time. No I/O.

A process that has just started is smaller than one that has worked for minutes. So the mean over all processes in a quarter of the run
depends more on the times of faults than on growth. Two figures compare equal conditions instead. Both ignore samples of processes younger
than ``WARM_UP_SECONDS``, because they depend on how busy the machine was while libraries were loaded.

- *between quarters, at equal age*: samples of the second and of the last quarter are compared only at equal age since the start of
  the process, in bins of ``AGE_BIN_SECONDS``, weighted by the smaller of the two counts. A process without faults has no equal ages
  in both quarters; it is compared with itself. This finds growth from one incarnation to the next, and growth of a survivor.
- *within a process, per hour*: the slope of memory over age, with one intercept per incarnation. This finds a leak that restarts
  hide.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

AGE_BIN_SECONDS = 5.0
WARM_UP_SECONDS = 20.0
"""After this time libraries are loaded, buffers are filled, and the first checkpoint is written."""
MIN_PAIRS = 5
"""With fewer comparable samples no growth is stated."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Resident memory at one time."""

    at: float
    """Seconds since the soak began."""
    pid: int
    age_seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of one process's memory over the run."""

    most_bytes: int
    incarnations: int
    between_quarters: float | None
    """Last quarter over second quarter at equal age, minus 1; None without enough samples."""
    compared_samples: int
    """Number of samples on the smaller side."""
    slope_bytes_per_hour: float | None
    """Slope within a process, after its warm-up."""


def growth(samples: Sequence[Sample], seconds: float) -> Growth:
    """Compare the quarters of a run that took ``seconds``."""
    warm = [sample for sample in samples if sample.age_seconds >= WARM_UP_SECONDS]
    second = [sample for sample in warm if seconds / 4 <= sample.at < seconds / 2]
    last = [sample for sample in warm if sample.at >= 3 * seconds / 4]
    between, compared = _between(second, last)
    return Growth(
        most_bytes=max((sample.bytes for sample in samples), default=0),
        incarnations=len({sample.pid for sample in samples}),
        between_quarters=between,
        compared_samples=compared,
        slope_bytes_per_hour=_slope(warm),
    )


def _between(second: Sequence[Sample], last: Sequence[Sample]) -> tuple[float | None, int]:
    survivors = {sample.pid for sample in second} & {sample.pid for sample in last}
    # A survivor's own samples are compared at any age; the others by age, without survivors, so that nothing counts twice.
    before: dict[tuple[str, int], list[int]] = defaultdict(list)
    after: dict[tuple[str, int], list[int]] = defaultdict(list)
    for group, samples in ((before, second), (after, last)):
        for sample in samples:
            key = ("pid", sample.pid) if sample.pid in survivors else ("age", int(sample.age_seconds / AGE_BIN_SECONDS))
            group[key].append(sample.bytes)
    weighted, pairs = 0.0, 0
    for key in before.keys() & after.keys():
        weight = min(len(before[key]), len(after[key]))
        weighted += weight * (_mean(after[key]) / _mean(before[key]) - 1.0)
        pairs += weight
    return (weighted / pairs, pairs) if pairs >= MIN_PAIRS else (None, pairs)


def _slope(samples: Iterable[Sample]) -> float | None:
    by_pid = defaultdict(list)
    for sample in samples:
        by_pid[sample.pid].append(sample)
    covariance = variance = 0.0
    for own in by_pid.values():
        mean_age, mean_bytes = _mean([sample.age_seconds for sample in own]), _mean([sample.bytes for sample in own])
        covariance += sum((sample.age_seconds - mean_age) * (sample.bytes - mean_bytes) for sample in own)
        variance += sum((sample.age_seconds - mean_age) ** 2 for sample in own)
    return 3600.0 * covariance / variance if variance > 0.0 else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
