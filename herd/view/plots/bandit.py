"""Draws the bandits of a task over time: the value of each tile of 1/tau, and the temperatures that were chosen.

The numbers come from RUN/bandit/history.jsonl. Records that were superseded after a restart from an older state are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from herd.files import read_lines
from herd.run.journals import without_superseded
from herd.view.plots.figure import VERMILION, PlotError, check_output, drawn_to, x_scale

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from herd.view.plots.averaging import FloatArray

HISTORY = "bandit/history.jsonl"
_PER_TILE = ("values", "reports", "handed_out")
_LONGEST_LIST = 8
"""Largest number of task names in a message."""
_MAX_COLUMNS = 600  # more than the picture has pixels to tell apart
_TICKS = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0)
_UNTRIED = "0.88"


@dataclass(frozen=True, slots=True)
class BanditHistory:
    """P records of K tiles in time order."""

    task: str
    edges: FloatArray
    """Edges of the tiles in 1/tau, [K + 1]."""
    env_frames: FloatArray
    """Env frames of this task's games counted so far, [P]; never decreasing."""
    episodes: FloatArray
    """Number of games counted so far, [P]."""
    values: FloatArray
    """Mean values over the bandits, [P, K]."""
    reports: FloatArray
    """Number of games counted so far by tile, [P, K]."""
    handed_out: FloatArray
    """Number of temperatures chosen so far by tile, [P, K]."""


@dataclass(frozen=True, slots=True)
class Heat:
    """C columns of time, K tiles."""

    x_edges: FloatArray
    """In env frames, [C + 1]; column c lies between edges c and c + 1."""
    values: FloatArray
    """Values at the end of the column, [C, K]; NaN for tiles that have not been tried yet."""
    shares: FloatArray
    """Shares of the temperatures chosen in the column, [C, K]; zero if there were none."""
    best: FloatArray
    """1/tau in the middle of the best tile among those tried, [C]."""


def plot_bandit(run_dir: Path, output: Path, *, task: str | None = None, agent: int = 0) -> None:
    """Draw tile values and chosen temperatures of a task over time to ``output`` (.png, .pdf or .svg).

    Args:
        run_dir: directory of a run with a bandit; the run may be running.
        output: the picture; its folder is created.
        task: name of the task; None if the run has only one.
        agent: number of the agent.

    Raises:
        PlotError: there is nothing to plot, the kind of file is unknown, or the history cannot be read; one line.

    """
    check_output(output)
    history = read_bandit_history(run_dir, task=task, agent=agent)
    heat = heat_of(history)
    with drawn_to(output, (9.0, 7.0)) as figure:
        _draw(figure, history, heat)


def heat_of(history: BanditHistory, most_columns: int = _MAX_COLUMNS) -> Heat:
    """Group records into at most ``most_columns`` columns. Each column ends at its last record."""
    xs = history.env_frames
    column = np.minimum((xs / max(float(xs[-1]), 1.0) * most_columns).astype(np.int64), most_columns - 1)
    ends = np.flatnonzero(np.append(np.diff(column) > 0, True))  # the last record ends the last column
    values = np.where(history.reports[ends] > 0, history.values[ends], np.nan)
    handed_out = np.diff(history.handed_out[ends], axis=0, prepend=0.0)
    totals = handed_out.sum(axis=1, keepdims=True)
    middles = np.expm1((np.log1p(history.edges[:-1]) + np.log1p(history.edges[1:])) / 2)
    best = middles[np.where(np.isnan(values), -np.inf, values).argmax(axis=1)]
    return Heat(np.append(0.0, xs[ends]), values, handed_out / np.maximum(totals, 1.0), best)


def _draw(figure: Figure, history: BanditHistory, heat: Heat) -> None:
    upper, lower = figure.subplots(2, 1, sharex=True)
    unit, unit_name = x_scale(float(heat.x_edges[-1]), "environment frames of finished games")
    x_edges, y_edges = heat.x_edges / unit, np.log1p(history.edges)
    _draw_heat(figure, upper, x_edges, y_edges, heat.values, colours="viridis", label="value of the tile (return)")
    _draw_best(upper, x_edges, np.log1p(heat.best))
    games = f"{int(history.episodes[-1]):,} games"
    upper.set_title(f"{history.task.replace('_', ' ')}: values of the tiles after {games}", loc="left", fontweight="bold")
    _draw_heat(figure, lower, x_edges, y_edges, heat.shares * 100, colours="Blues", label="share of the temperatures (%)", low=0.0)
    lower.set_title("chosen temperatures", loc="left", fontweight="bold")
    lower.set_xlabel(unit_name)
    for axes in (upper, lower):
        _set_y_ticks(axes, history.edges)


def _draw_heat(
    figure: Figure, axes: Axes, x: FloatArray, y: FloatArray, values: FloatArray, *, colours: str, label: str, low: float | None = None
) -> None:
    axes.set_facecolor(_UNTRIED)
    mesh = axes.pcolormesh(x, y, np.ma.masked_invalid(values.T), cmap=colours, vmin=low, shading="flat", rasterized=True)
    figure.colorbar(mesh, ax=axes, label=label, pad=0.01)
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(y[0], y[-1])


def _draw_best(axes: Axes, x: FloatArray, best: FloatArray) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415

    ys = np.append(best[:1], best)
    axes.step(x, ys, where="pre", color="white", linewidth=2.2)  # seen on every colour of the map
    [line] = axes.step(x, ys, where="pre", color=VERMILION, linewidth=1.1, label="best tile")
    axes.legend(handles=[line, Patch(color=_UNTRIED, label="not tried yet")], loc="upper left", framealpha=0.8, fontsize=8)


def _set_y_ticks(axes: Axes, edges: FloatArray) -> None:
    ticks = [tick for tick in _TICKS if edges[0] <= tick <= edges[-1]]
    axes.set_yticks(np.log1p(ticks), [f"{tick:g}" for tick in ticks])
    axes.set_ylabel("inverse temperature 1/\N{GREEK SMALL LETTER TAU}\n(0: uniform policy)")


def read_bandit_history(run_dir: Path, *, task: str | None = None, agent: int = 0) -> BanditHistory:
    """Read the records of one task; ``task`` may be omitted if there is only one.

    Raises:
        PlotError: there is no history, task or agent, there are several tasks, or the file cannot be read; one line.

    """
    path = run_dir / HISTORY
    records = [record for record in _read_records(path) if record["agent"] == agent]
    tasks = list(dict.fromkeys(str(record["task"]) for record in records))
    if not records:
        raise PlotError(f"{path} contains no records of agent {agent} yet")
    if task is None and len(tasks) > 1:
        raise PlotError(f"{path} has records of {len(tasks)} tasks; choose one with --task: {_listed(tasks)}")
    task = task or tasks[0]
    if task not in tasks:
        raise PlotError(f"{path} contains no records of {task}; it has records of {_listed(tasks)}")
    kept = without_superseded(
        (record for record in records if record["task"] == task), lambda old, new: bool(old["episodes"] >= new["episodes"])
    )
    # Records from before a resumption with other tiles cannot be drawn in the same picture.
    kept = [record for record in kept if record["edges"] == kept[-1]["edges"]]
    return BanditHistory(
        task,
        np.array(kept[-1]["edges"], np.float64),
        *(np.array([record[name] for record in kept], np.float64) for name in ("env_frames", "episodes", *_PER_TILE)),
    )


def _read_records(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        raise PlotError(
            f"no such file: {path} (runs with loss.kind dice write it when games have ended, except with the ablation baseline)"
        )
    return list(read_lines(path, "a record of a bandit", _checked))


def _checked(record: dict[str, Any]) -> dict[str, Any]:
    num_tiles = len(record["edges"]) - 1
    for name in _PER_TILE:
        if len(record[name]) != num_tiles:
            raise ValueError(f"{len(record[name])} {name} for {num_tiles} tiles")
    for name in ("agent", "task", "env_frames", "episodes"):
        _ = record[name]
    return record


def _listed(tasks: list[str]) -> str:
    shown = ", ".join(tasks[:_LONGEST_LIST])
    return shown if len(tasks) <= _LONGEST_LIST else f"{shown}, and {len(tasks) - _LONGEST_LIST} more"
