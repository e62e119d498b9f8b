"""Reads an evaluator's evaluation.jsonl, with one frozen version per line, for the learning curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from herd.run.journals import read_evaluations
from herd.view.plots.averaging import Curve

if TYPE_CHECKING:
    from herd.view.plots.history import RunHistory, XAxis


def evaluation_curves(run: RunHistory, axis: XAxis) -> dict[str, Curve]:
    """Return a run's evaluations by task. ``low`` and ``high`` are 1.96 standard errors from the mean, or NaN if it is unknown.

    Versions are identified by learner updates. Their place on the axis is interpolated from the run's learning curve.

    Raises:
        JournalError: see `read_evaluations`.

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
