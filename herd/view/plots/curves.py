"""Learning curves of runs: finds repeats, and computes the lines of each panel. Repeats are averaged and get a band."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from herd.run.journals import read_evaluations
from herd.run.paths import AGENTS
from herd.view.plots.averaging import Curve, interquartile_mean_curve, mean_curve, single_curve, smoothed
from herd.view.plots.figure import COLOURS, PlotError, check_output, drawn_to
from herd.view.plots.history import RunHistory, XAxis, read_run
from herd.view.plots.panels import Line, Panel, PanelSet, References, Style, draw_panels, learning_panels, return_panels, task_scores

Grouping = Literal["experiment", "none"]
ReferenceScores = Callable[[str, str], tuple[float, float] | None]

_STYLES: tuple[Style, ...] = ("-", "--", ":", "-.")
"""Line styles: when all colours are used, they are repeated in the next style."""
_MAX_DIFFERING = 3
"""Largest number of settings that fit into a label."""
_PARTS_OF_A_CURVE = 40
"""Numbers of single updates are noisy. They are drawn behind a trailing mean over this fraction (one part in N) of their points."""


@dataclass(frozen=True, slots=True)
class Curves:
    """The contents of a picture of runs."""

    panels: tuple[Panel, ...]
    lines: tuple[Line, ...]
    references: References


@dataclass(frozen=True, slots=True)
class _Group:
    label: str
    runs: tuple[RunHistory, ...]


def plot_runs(
    run_dirs: Sequence[Path],
    output: Path,
    *,
    x: XAxis = "env_frames",
    group: Grouping = "experiment",
    reference_scores: ReferenceScores | None = None,
    panels: PanelSet = "returns",
) -> None:
    """Draw the runs' learning curves to ``output`` (.png, .pdf or .svg).

    Runs with the same name (except for an ending such as ``-seed3`` or ``-s3``) and equal env, network, algorithm, optimizer and replay
    settings are repeats. ``group="experiment"`` draws the mean of repeats over the range that all have covered, with its band
    (`mean_curve`), and each repeat as a thin line. ``group="none"`` draws every run separately.

    Args:
        run_dirs: directories with ``metrics.jsonl`` and, for name, seed and tasks, ``config.yaml``; the runs may be running.
        output: the picture; its folder is created.
        x: ``env_frames`` (over all tasks) or ``wall_seconds`` (running time, including restarts).
        group: see above.
        reference_scores: suite and task name -> (random, human) score or None. Drawn if all runs play one suite.
        panels: ``returns``: each task, all tasks together, throughput. ``learning``: losses, entropy, values, KL and the loss's metrics.

    Raises:
        PlotError: there is nothing to plot, the kind of file is unknown, or a run cannot be read; one line.

    """
    check_output(output)
    curves = collect_curves(run_dirs, panels, x=x, group=group, reference_scores=reference_scores)
    with drawn_to(output) as figure:
        draw_panels(figure, curves.lines, curves.panels, x=x, references=curves.references)


def collect_curves(
    run_dirs: Sequence[Path],
    panels: PanelSet,
    *,
    x: XAxis = "env_frames",
    group: Grouping = "experiment",
    reference_scores: ReferenceScores | None = None,
) -> Curves:
    """Read runs and compute the lines of each panel. Arguments and errors are those of `plot_runs`."""
    histories = [read_run(directory) for directory in dict.fromkeys(run_dirs)]
    if not histories:
        raise PlotError("no run directories to plot")
    chosen = return_panels(histories) if panels == "returns" else learning_panels(histories)
    if not chosen:
        raise PlotError(f"{run_dirs[0]}: the learner has made no update yet")
    tasks = [panel.key for panel in chosen if panel.kind == "task"]
    references = {}
    suites = {history.suite for history in histories}
    if reference_scores is not None and len(suites) == 1:
        [suite] = suites
        references = {task: found for task in tasks if (found := reference_scores(suite, task)) is not None}
    return Curves(tuple(chosen), tuple(_lines(_groups(histories, group), chosen, x)), references)


def _groups(histories: Sequence[RunHistory], grouping: Grouping) -> list[_Group]:
    directories = _short_names([history.directory for history in histories])
    if grouping == "none":
        return [_Group(name, (history,)) for name, history in zip(directories, histories, strict=True)]
    members: dict[tuple[str, frozenset[tuple[str, str]]], list[int]] = {}
    for index, history in enumerate(histories):
        members.setdefault((history.experiment, frozenset(history.settings.items())), []).append(index)
    num_names = len({experiment for experiment, _ in members})
    groups = []
    for (experiment, _), indices in members.items():
        first, swept = directories[indices[0]], histories[indices[0]].sweep
        same_name = [histories[others[0]].settings for (name, _), others in members.items() if name == experiment]
        if swept:
            label = swept if num_names == 1 else f"{experiment}: {swept}"
        elif len(indices) == 1:
            label = first
        elif len(same_name) > 1:
            label = f"{experiment} ({_differing(histories[indices[0]].settings, same_name) or f'{first}, ...'})"
        else:
            label = experiment
        groups.append(_Group(label, tuple(histories[index] for index in indices)))
    return groups


def _differing(settings: Mapping[str, str], groups: Sequence[Mapping[str, str]]) -> str:
    """Return the values of the settings that all groups have and in which they differ.

    Empty if they are too many to read, or if two groups have the same values.
    """
    keys = [key for key, value in settings.items() if all(key in each for each in groups) and any(each[key] != value for each in groups)]
    if len(keys) > _MAX_DIFFERING or len({tuple(each[key] for key in keys) for each in groups}) < len(groups):
        return ""
    return ", ".join(f"{key}={settings[key]}" for key in keys)


def _short_names(directories: Sequence[Path]) -> list[str]:
    """Return the shortest trailing parts of each path that are all different."""
    resolved = [directory.resolve() for directory in directories]
    shortest = 2 if any(path.parent.name == AGENTS for path in resolved) else 1  # "agents/0" says more than "0"
    for depth in range(shortest, max(len(path.parts) for path in resolved) + 1):
        names = [str(Path(*path.parts[-depth:])) for path in resolved]
        if len(set(names)) == len(set(resolved)):
            break
    return names


def _lines(groups: Sequence[_Group], panels: Sequence[Panel], x: XAxis) -> list[Line]:
    lines = []
    for index, group in enumerate(groups):
        colour, style = COLOURS[index % len(COLOURS)], _STYLES[index // len(COLOURS) % len(_STYLES)]
        names = _short_names([run.directory for run in group.runs])
        tasks = {task for run in group.runs for task in run.episode_returns}
        for panel in panels:
            if (panel.kind == "task" and panel.key not in tasks) or (panel.kind == "tasks" and len(tasks) < 2):
                continue
            mean, singles = _curves(panel, group, x)
            if len(group.runs) > 1:
                lines += [
                    Line(panel, name, colour, style, curve, thin=True) for name, curve in zip(names, singles, strict=False) if len(curve.x)
                ]
            elif panel.kind == "learning" and singles:
                lines.append(Line(panel, names[0], colour, style, singles[0], thin=True))
            if mean is not None:
                lines.append(Line(panel, group.label, colour, style, mean, thin=False))
        for run, name in zip(group.runs, names, strict=True):
            evaluated = evaluation_curves(run, x)
            lines += [
                Line(panel, f"{name}: evaluation", colour, style, evaluated[panel.key], thin=False, is_evaluation=True)
                for panel in panels
                if panel.kind == "task" and panel.key in evaluated and panel.key in tasks
            ]
    return lines


def _curves(panel: Panel, group: _Group, x: XAxis) -> tuple[Curve | None, list[Curve]]:
    """Return the mean curve of a group and the curve of each run."""
    if panel.kind == "interquartile":
        scored = [run for run in group.runs if run.task_scores.keys() == group.runs[0].task_scores.keys() and run.task_scores]
        return interquartile_mean_curve([(run.x(x), task_scores(run)) for run in scored]), []
    raw = [(run.x(x), panel.values(run)) for run in group.runs]
    series = singles = raw
    if panel.kind == "learning":
        series = [(xs, smoothed(values, max(1, len(values) // _PARTS_OF_A_CURVE))) for xs, values in raw]
        singles = raw if len(raw) == 1 else series
    return mean_curve(series), [single_curve(xs, values) for xs, values in singles]


def evaluation_curves(run: RunHistory, axis: XAxis) -> dict[str, Curve]:
    """Return a run's evaluations by task. ``low`` and ``high`` are 1.96 standard errors from the mean, or NaN if it is unknown.

    Versions are identified by learner updates. Their place on the axis is interpolated from the run's learning curve.

    Raises:
        FileError: see `read_evaluations`.

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
