"""The results of a sweep: the final return of each run, interquartile means over seeds, and their intervals.

R runs (seeds) of a combination, K tasks.
"""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from herd.components.suites.scores import human_normalised, interquartile_mean
from herd.evaluation.intervals import percentiles, resampled_run_scores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from herd.components.suites.scores import ReferenceScores

    FloatArray = NDArray[np.float64]

WINDOW_FRAMES = 1_000_000
"""The final return is the mean of the curve over the last million frames, as in published tables."""
ALL_TASKS = "all tasks, human-normalised"


@dataclass(frozen=True, slots=True)
class RunScore:
    """One run."""

    combination: int
    """Number of the combination in the sweep."""
    seed: int
    directory: str
    env_frames: float
    wall_seconds: float
    returns: dict[str, float | None]
    """Final returns by task; None if no game ended."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The result of a combination on one task or on all tasks."""

    combination: int
    what: str
    """The task, or `ALL_TASKS`."""
    runs: int
    interquartile_mean: float
    interval_95: tuple[float, float] | None
    """Bootstrap interval over runs, resampled within each task; None for a single run."""
    mean: float
    scores: tuple[float, ...]
    """Return of each run on the task. Empty for `ALL_TASKS`, whose interquartile mean is over the tasks of all runs."""


def final_return(env_frames: FloatArray, returns: FloatArray) -> float:
    """Return the mean of a curve, [P], over its last million frames, or over its last quarter if it is shorter than four million.

    NaN points, from before the first game ended, are left out. Returns NaN if no game ended, and the last point if the window is empty.
    """
    known = np.isfinite(returns)
    if not known.any():
        return float("nan")
    total = float(env_frames[-1])
    late = known & (env_frames > total - min(WINDOW_FRAMES, total / 4))
    return float(returns[late].mean()) if late.any() else float(returns[known][-1])


def estimates(scores: Sequence[RunScore], references: Mapping[str, ReferenceScores]) -> list[Estimate]:
    """Return the estimates of every combination in order: for each task, and for all tasks if there are several with reference scores."""
    found = []
    for combination in dict.fromkeys(score.combination for score in scores):
        own = [score for score in scores if score.combination == combination]
        tasks = list(dict.fromkeys(task for score in own for task in score.returns))
        for task in tasks:
            returns = np.array([value for score in own if (value := score.returns.get(task)) is not None], np.float64)
            if len(returns):
                found.append(_estimate(combination, task, returns[:, None]))
        whole = [score for score in own if all(score.returns.get(task) is not None for task in tasks)]
        if len(tasks) > 1 and whole and all(task in references for task in tasks):
            by_task = [human_normalised([score.returns[task] or 0.0 for score in whole], references[task]) for task in tasks]
            found.append(_estimate(combination, ALL_TASKS, np.stack(by_task, axis=1)))
    return found


def _estimate(combination: int, what: str, scores: FloatArray) -> Estimate:
    """Compute one estimate from ``scores``, [R, K]."""
    num_runs = len(scores)
    interval = None
    if num_runs > 1:
        resampled = resampled_run_scores([[run[None] for run in column] for column in scores.T])
        interval = percentiles(interquartile_mean(resampled.reshape(len(resampled), -1)))
    by_run = tuple(map(float, scores[:, 0])) if what != ALL_TASKS else ()
    return Estimate(combination, what, num_runs, float(interquartile_mean(scores.ravel())), interval, float(scores.mean()), by_run)


def write_json(
    path: Path,
    combinations: Sequence[Mapping[str, str]],
    scores: Sequence[RunScore],
    found: Sequence[Estimate],
    **about: object,
) -> None:
    """Write all results as JSON; ``about``: run files, overrides, seeds."""
    rows = [
        {
            "values": dict(values),
            "estimates": {each.what: _without(asdict(each), "combination", "what") for each in found if each.combination == number},
            "runs": [_without(asdict(score), "combination") for score in scores if score.combination == number],
        }
        for number, values in enumerate(combinations)
    ]
    path.write_text(json.dumps({**about, "combinations": rows}, indent=1) + "\n", encoding="utf-8")


def write_csv(path: Path, combinations: Sequence[Mapping[str, str]], scores: Sequence[RunScore]) -> None:
    """Write a row for each task of each run."""
    keys = list(combinations[0]) if combinations else []
    with path.open("w", encoding="utf-8", newline="") as lines:
        rows = csv.writer(lines)
        rows.writerow([*keys, "seed", "task", "return", "env_frames", "wall_seconds", "directory"])
        for score in scores:
            values = [combinations[score.combination][key] for key in keys]
            for task, value in score.returns.items():
                shown = "" if value is None else value
                rows.writerow([*values, score.seed, task, shown, score.env_frames, score.wall_seconds, score.directory])


def _without(record: dict[str, object], *names: str) -> dict[str, object]:
    return {name: value for name, value in record.items() if name not in names}
