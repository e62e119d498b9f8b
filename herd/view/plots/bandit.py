"""Draws the bandits of a task over time: the value of each tile of 1/tau, and the temperatures that were chosen."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from herd.view.plots.bandit_history import BanditAxis, BanditHistory, read_bandit_history
from herd.view.plots.history import PlotError

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from herd.view.plots.averaging import FloatArray

_MOST_COLUMNS = 600  # more than the picture has pixels to tell apart
_SUFFIXES = (".png", ".pdf", ".svg")
_TICKS = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0)
_UNTRIED = "0.88"


@dataclass(frozen=True, slots=True)
class Heat:
    """C columns of time, K tiles."""

    x_edges: FloatArray
    """[C + 1]; column c lies between edges c and c + 1."""
    values: FloatArray
    """Values at the end of the column, [C, K]; NaN for tiles that have not been tried yet."""
    shares: FloatArray
    """Shares of the temperatures chosen in the column, [C, K]; zero if there were none."""
    best: FloatArray
    """1/tau in the middle of the best tile among those tried, [C]."""


def plot_bandit(
    run_dir: Path, output: Path, *, task: str | None = None, agent: int = 0, x: BanditAxis = "env_frames", data: Path | None = None
) -> None:
    """Draw tile values and chosen temperatures of a task over time to ``output`` (.png, .pdf or .svg).

    Args:
        run_dir: directory of a run with a bandit; the run may be running.
        output: the picture; its folder is created.
        task: name of the task; None if the run has only one.
        agent: number of the agent.
        x: horizontal axis: ``env_frames`` or ``episodes`` of this task's finished games.
        data: .csv file for the numbers that are drawn, one row per column and tile.

    Raises:
        PlotError: there is nothing to plot, the kind of file is unknown, or the history cannot be read; one line.

    """
    if output.suffix.lower() not in _SUFFIXES:
        raise PlotError(f"{output}: the name of a plot must end in {', '.join(_SUFFIXES)}")
    history = read_bandit_history(run_dir, task=task, agent=agent)
    heat = heat_of(history, x)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _draw(history, heat, output, x)
        if data is not None:
            data.parent.mkdir(parents=True, exist_ok=True)
            _write_data(history, heat, data, x)
    except OSError as error:
        raise PlotError(f"cannot write {error.filename or output}: {error.strerror or error}") from error


def heat_of(history: BanditHistory, x: BanditAxis, most_columns: int = _MOST_COLUMNS) -> Heat:
    """Group records into at most ``most_columns`` columns. Each column ends at its last record."""
    xs = history.x(x)
    column = np.minimum((xs / max(float(xs[-1]), 1.0) * most_columns).astype(np.int64), most_columns - 1)
    ends = np.flatnonzero(np.append(np.diff(column) > 0, True))  # the last record ends the last column
    values = np.where(history.reports[ends] > 0, history.values[ends], np.nan)
    handed_out = np.diff(history.handed_out[ends], axis=0, prepend=0.0)
    totals = handed_out.sum(axis=1, keepdims=True)
    middles = np.expm1((np.log1p(history.edges[:-1]) + np.log1p(history.edges[1:])) / 2)
    best = middles[np.where(np.isnan(values), -np.inf, values).argmax(axis=1)]
    return Heat(np.append(0.0, xs[ends]), values, handed_out / np.maximum(totals, 1.0), best)


def _draw(history: BanditHistory, heat: Heat, output: Path, x: BanditAxis) -> None:
    import matplotlib as mpl  # noqa: PLC0415 (half a second; only drawing pays for it)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"font.size": 9, "axes.titlesize": 10, "svg.hashsalt": "herd"}):
        figure = Figure(figsize=(9.0, 7.0), layout="constrained", dpi=150)
        FigureCanvasAgg(figure)
        upper, lower = figure.subplots(2, 1, sharex=True)
        unit, unit_name = _x_unit(float(heat.x_edges[-1]), x)
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
        figure.savefig(output)


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
    [line] = axes.step(x, ys, where="pre", color="#D55E00", linewidth=1.1, label="best tile")
    axes.legend(handles=[line, Patch(color=_UNTRIED, label="not tried yet")], loc="upper left", framealpha=0.8, fontsize=8)


def _set_y_ticks(axes: Axes, edges: FloatArray) -> None:
    ticks = [tick for tick in _TICKS if edges[0] <= tick <= edges[-1]]
    axes.set_yticks(np.log1p(ticks), [f"{tick:g}" for tick in ticks])
    axes.set_ylabel("inverse temperature 1/\N{GREEK SMALL LETTER TAU}\n(0: uniform policy)")


def _x_unit(largest: float, x: BanditAxis) -> tuple[float, str]:
    what = "environment frames of finished games" if x == "env_frames" else "games"
    if largest >= 2e6:
        return 1e6, f"{what} (millions)"
    return (1e3, f"{what} (thousands)") if largest >= 2e3 else (1.0, what)


def _write_data(history: BanditHistory, heat: Heat, path: Path, x: BanditAxis) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([x, "inverse_temperature_low", "inverse_temperature_high", "value", "share_handed_out"])
        for column, end in enumerate(heat.x_edges[1:]):
            for tile, (low, high) in enumerate(zip(history.edges[:-1], history.edges[1:], strict=True)):
                value = heat.values[column, tile]
                text = "" if np.isnan(value) else f"{value:.8g}"
                writer.writerow([f"{end:.0f}", f"{low:.6g}", f"{high:.6g}", text, f"{heat.shares[column, tile]:.6g}"])
