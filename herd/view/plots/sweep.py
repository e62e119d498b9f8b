"""Draws a sweep: for each task the interquartile mean of every combination, its interval, and a dot for each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from herd.view.plots.history import PlotError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# Okabe and Ito's colours, which are distinguishable with all common kinds of colour blindness.
_MEAN, _RUN = "#0072B2", "#E69F00"
_MOST_PANELS = 8


class Row(NamedTuple):
    """One combination."""

    label: str
    centre: float
    interval: tuple[float, float] | None
    runs: tuple[float, ...]


def draw_sweep(panels: Mapping[str, Sequence[Row]], output: Path, *, title: str) -> None:
    """Draw a panel for each of ``panels`` to ``output``; if there are too many, only the last ones.

    Raises:
        PlotError: the picture cannot be written.

    """
    import matplotlib as mpl  # noqa: PLC0415 (half a second; only drawing pays for it)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    shown = dict(list(panels.items())[-_MOST_PANELS:])
    heights = [0.9 + 0.28 * len(rows) for rows in shown.values()]
    with mpl.rc_context({"font.size": 9, "axes.titlesize": 10, "svg.hashsalt": "herd"}):
        figure = Figure(figsize=(8.0, 0.7 + sum(heights)), layout="constrained", dpi=150)
        FigureCanvasAgg(figure)
        figure.suptitle(title, fontweight="bold")
        panel_axes = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (name, rows) in zip(panel_axes, shown.items(), strict=True):
            places = range(len(rows))[::-1]  # the first row is at the top
            for place, row in zip(places, rows, strict=True):
                axes.scatter(row.runs, [place] * len(row.runs), s=14, color=_RUN, alpha=0.8, linewidths=0, zorder=2)
                if row.interval is not None:
                    axes.plot(row.interval, (place, place), color=_MEAN, linewidth=5, alpha=0.35, solid_capstyle="butt", zorder=1)
                axes.plot([row.centre], [place], marker="|", markersize=13, markeredgewidth=2.2, color=_MEAN, zorder=3)
            axes.set_yticks(places, [row.label for row in rows])
            axes.set_ylim(-0.6, len(rows) - 0.4)
            axes.set_title(name, loc="left")
            axes.grid(visible=True, axis="x", color="0.9", linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(axis="y", length=0)
        figure.supxlabel("interquartile mean over seeds, its 95 % interval, and each run", fontsize=8)
        try:
            figure.savefig(output)
        except OSError as error:
            raise PlotError(f"cannot write {output}: {error.strerror or error}") from error
