"""Reference scores, as suites have them in tables, and the numbers that papers make of them.

A score is the mean episode return of one task. 1.0 means the human reference (or the human world record), not 100 %.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from herd.envs.api import UnknownTaskError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

    from numpy.typing import ArrayLike, NDArray

SABER_CAP = 2.0
"""Toromanoff et al. 2019: a task counts at most twice the world record; there is no floor."""


@dataclass(frozen=True, slots=True)
class ReferenceScores:
    """What others reach on one task."""

    task: str
    random: float
    human: float
    world_record: float | None
    """None where the table has none (DMLab-30)."""
    minimal_actions: int | None
    """Size of the game's own action set (Atari only)."""


@dataclass(frozen=True, slots=True)
class ScoreSummary:
    """One agent on several tasks."""

    num_tasks: int
    mean: float
    """Of the human-normalised scores."""
    median: float
    mean_capped: float
    """Each task counts at most 1."""
    saber: float | None
    """Mean of the record-normalised scores, each at most 2; None where a record is missing."""


def read_reference_scores(table: Traversable) -> Mapping[str, ReferenceScores]:
    """All tasks of a table (CSV) by name, in its order: columns task, random, human; human_world_record and minimal_actions, if any."""
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


def dmlab_scores() -> Mapping[str, ReferenceScores]:
    """DMLab-30."""
    return read_reference_scores(resources.files("herd.envs") / "data" / "dmlab30_scores.csv")


def human_normalised(score: ArrayLike, reference: ReferenceScores) -> NDArray[np.float64]:
    """(s - random) / (human - random), elementwise: 0 plays at random, 1 like the human."""
    return np.asarray((np.asarray(score, np.float64) - reference.random) / (reference.human - reference.random))


def capped_human_normalised(score: ArrayLike, reference: ReferenceScores) -> NDArray[np.float64]:
    """min(human-normalised score, 1), elementwise: no task makes up for another."""
    return np.minimum(human_normalised(score, reference), 1.0)


def record_normalised(score: ArrayLike, reference: ReferenceScores) -> NDArray[np.float64]:
    """SABER: min((s - random) / (record - random), 2), elementwise, without a floor. ValueError if there is no record."""
    if reference.world_record is None:
        raise ValueError(f"no human world record is known for {reference.task}")
    return np.minimum((np.asarray(score, np.float64) - reference.random) / (reference.world_record - reference.random), SABER_CAP)


def summarise(scores: Mapping[str, float], table: Mapping[str, ReferenceScores]) -> ScoreSummary:
    """Summary of one score per task, by a suite's table. UnknownTaskError if the table lacks a task, ValueError if there is no task."""
    if not scores:
        raise ValueError("a summary needs the score of at least one task")
    if missing := sorted(set(scores) - set(table)):
        raise UnknownTaskError(f"no reference scores for {', '.join(missing)} in the table")
    normalised = np.array([human_normalised(score, table[task]) for task, score in scores.items()])
    has_records = all(table[task].world_record is not None for task in scores)
    return ScoreSummary(
        num_tasks=len(scores),
        mean=float(normalised.mean()),
        median=float(np.median(normalised)),
        mean_capped=float(np.minimum(normalised, 1.0).mean()),
        saber=float(np.mean([record_normalised(score, table[task]) for task, score in scores.items()])) if has_records else None,
    )


def interquartile_mean(values: ArrayLike) -> float:
    """Mean of what remains when the lowest and the highest quarter (rounded down) are left out (Agarwal et al. 2021)."""
    ordered = np.sort(np.asarray(values, np.float64), axis=None)
    if ordered.size == 0:
        raise ValueError("the interquartile mean needs at least one value")
    cut = ordered.size // 4
    return float(ordered[cut : ordered.size - cut].mean())
