"""Reads an evaluator's evaluation.jsonl, with one frozen version per line, for the learning curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from herd.plots.averaging import Curve
from herd.plots.history import PlotError, read_lines, read_points, without_superseded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from herd.plots.history import RunHistory, XAxis

EVALUATIONS = "evaluation.jsonl"


@dataclass(frozen=True, slots=True)
class EvaluationPoint:
    """The evaluation of one version."""

    lineage: int
    learner_updates: int
    means: Mapping[str, float]
    """Mean return over whole games, by task."""
    standard_errors: Mapping[str, float]
    """Standard error of the mean, by task; without tasks of which only one game was played."""


def read_evaluations(directory: Path) -> list[EvaluationPoint]:
    """Read the evaluations of a run or an agent in order; empty if there is no file. Superseded evaluations are left out.

    Raises:
        PlotError: the file cannot be read, or a line other than the last one is invalid.

    """
    path = directory / EVALUATIONS
    if not path.exists():
        return []
    # Superseded: the run was restored from an older checkpoint, or this version was evaluated again.
    return without_superseded(read_lines(path, "an evaluation", _point), lambda old, new: old.learner_updates >= new.learner_updates)


def frames_at(directory: Path, learner_updates: int) -> int | None:
    """Return the env frames of a run or an agent at ``learner_updates``; None if its learning curve is missing or too short."""
    try:
        points = [point for point in read_points(directory) if isinstance(point.get("learner_updates"), int)]
    except PlotError:
        return None
    if not points or points[-1]["learner_updates"] < learner_updates:
        return None
    updates, frames = ([0, *(point[name] for point in points)] for name in ("learner_updates", "env_frames"))
    return round(float(np.interp(learner_updates, updates, frames)))


def evaluation_curves(run: RunHistory, axis: XAxis) -> dict[str, Curve]:
    """Return a run's evaluations by task. ``low`` and ``high`` are 1.96 standard errors from the mean, or NaN if it is unknown.

    Versions are identified by learner updates. Their place on the axis is interpolated from the run's learning curve.

    Raises:
        PlotError: see `read_evaluations`.

    """
    points = read_evaluations(run.directory)
    known = np.isfinite(run.learner_updates)
    updates = np.concatenate([[0.0], run.learner_updates[known]])
    places = np.concatenate([[0.0], run.x(axis)[known]])
    curves = {}
    for task in dict.fromkeys(task for point in points for task in point.means):
        own = [point for point in points if task in point.means]
        mean = np.array([point.means[task] for point in own])
        error = 1.96 * np.array([point.standard_errors.get(task, np.nan) for point in own])
        x = np.interp([point.learner_updates for point in own], updates, places)
        curves[task] = Curve(x, mean, mean - error, mean + error, num_runs=1)
    return curves


def _point(record: dict[str, Any]) -> EvaluationPoint:
    tasks = record["tasks"]
    return EvaluationPoint(
        lineage=int(record["lineage"]),
        learner_updates=int(record["learner_updates"]),
        means={name: float(task["mean"]) for name, task in tasks.items() if task["mean"] is not None},
        standard_errors={name: float(task["standard_error"]) for name, task in tasks.items() if task.get("standard_error") is not None},
    )
