"""Reference scores from the tables of suites, and the statistics that papers compute with them.

A score is the mean episode return of one task. 1.0 means the human reference (or the human world record), not 100 %.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.resources.abc import Traversable

    from numpy.typing import ArrayLike, NDArray

SABER_CAP = 2.0
"""Toromanoff et al. 2019: a task counts at most twice the world record; there is no floor."""


@dataclass(frozen=True, slots=True)
class ReferenceScores:
    """The reference scores of a task."""

    task: str
    random: float
    human: float
    world_record: float | None
    """Human world record; None if the table has none (DMLab-30)."""
    minimal_actions: int | None
    """Size of the game's own action set (Atari only)."""


def read_reference_scores(table: Traversable) -> Mapping[str, ReferenceScores]:
    """Read a CSV table with the columns task, random, human, and optionally human_world_record and minimal_actions. Keeps its order."""
    scores = {}
    with table.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            scores[row["task"]] = ReferenceScores(
                task=row["task"],
                random=float(row["random"]),
                human=float(row["human"]),
                world_record=float(row["human_world_record"]) if row.get("human_world_record") else None,
                minimal_actions=int(row["minimal_actions"]) if row.get("minimal_actions") else None,
            )
    return MappingProxyType(scores)


def human_normalised(score: ArrayLike, reference: ReferenceScores) -> NDArray[np.float64]:
    """Return (s - random) / (human - random), elementwise: 0 is random play, 1 is human."""
    return np.asarray((np.asarray(score, np.float64) - reference.random) / (reference.human - reference.random))


def record_normalised(score: ArrayLike, reference: ReferenceScores) -> NDArray[np.float64]:
    """SABER: min((s - random) / (record - random), 2), elementwise, without a floor. ValueError if there is no record."""
    if reference.world_record is None:
        raise ValueError(f"there is no human world record for {reference.task}")
    return np.minimum((np.asarray(score, np.float64) - reference.random) / (reference.world_record - reference.random), SABER_CAP)


def aggregates(run_scores: ArrayLike, references: Sequence[ReferenceScores]) -> dict[str, NDArray[np.float64]]:
    """Return aggregates over tasks by name, each [...]. ``run_scores``, [..., R, K], are R runs (seeds) of each of the K ``references``.

    The score of a task is the mean over its runs; limits apply to this mean.

    - ``mean``, ``median``: of the tasks' human-normalised scores.
    - ``mean_capped``: each task counts at most 1 (IMPALA, appendix B).
    - ``interquartile_mean``: of the human-normalised scores of all R x K runs together (Agarwal et al. 2021, arXiv:2108.13264).
    - ``saber_mean``, ``saber_median``: of the record-normalised scores, each at most 2; left out where a task has no record.
    """
    scores = np.asarray(run_scores, np.float64)
    by_run = np.stack([human_normalised(scores[..., k], task) for k, task in enumerate(references)], axis=-1)
    by_task = by_run.mean(axis=-2)
    found = {
        "mean": by_task.mean(axis=-1),
        "median": np.median(by_task, axis=-1),
        "mean_capped": np.minimum(by_task, 1.0).mean(axis=-1),
        "interquartile_mean": interquartile_mean(by_run.reshape(*by_run.shape[:-2], -1)),
    }
    if all(task.world_record is not None for task in references):
        means = scores.mean(axis=-2)
        by_record = np.stack([record_normalised(means[..., k], task) for k, task in enumerate(references)], axis=-1)
        found |= {"saber_mean": by_record.mean(axis=-1), "saber_median": np.median(by_record, axis=-1)}
    return found


def interquartile_mean(values: ArrayLike) -> NDArray[np.float64]:
    """Return the mean over the last axis without the lowest and the highest quarter (rounded down), [..., N] -> [...]."""
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)
    count = ordered.shape[-1]
    if count == 0:
        raise ValueError("the interquartile mean needs at least one value")
    cut = count // 4
    return np.asarray(ordered[..., cut : count - cut].mean(axis=-1))
