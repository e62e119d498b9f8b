"""Draws results: human-normalised scores as bars, one per task, and a sweep as the interval of each combination."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from herd.view.plots.figure import BLUE, GREEN, ORANGE, VERMILION, drawn_to

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

_BETTER, _WORSE, _HUMAN = BLUE, VERMILION, "0.35"
_LINEAR_TO = 0.1
"""Beyond this score, in units of human, the axis is logarithmic on both sides of zero. Games differ by five orders of magnitude."""
_LARGEST_SPAN = 20.0
"""If all scores, in units of human, stay below this, the axis is linear."""
_MAX_PANELS = 8


class Bar(NamedTuple):
    """The bar of one task."""

    task: str
    score: float
    """Human-normalised: 0 random, 1 human."""
    interval: tuple[float, float] | None


class Row(NamedTuple):
    """One combination."""

    label: str
    centre: float
    interval: tuple[float, float] | None
    runs: tuple[float, ...]


def draw_scores(bars: Sequence[Bar], output: Path, *, title: str, lines: Mapping[str, float]) -> None:
    """Draw ``bars``, the best at the top, and named vertical ``lines`` (such as the median) to ``output``.

    Raises:
        PlotError: the picture cannot be written.

    """
    ordered = sorted(bars, key=lambda bar: bar.score)
    with drawn_to(output, (8.0, 1.6 + 0.19 * len(ordered))) as figure:
        axes = figure.subplots()
        _draw_bars(axes, ordered)
        _draw_lines(axes, lines)
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set_xlabel("human-normalised score (0 %: random play, 100 %: human)")


def _draw_bars(axes: Axes, bars: Sequence[Bar]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator  # noqa: PLC0415

    places = range(len(bars))
    scores = [bar.score for bar in bars]
    axes.barh(places, scores, height=0.72, color=[_BETTER if score >= 1 else _WORSE for score in scores], zorder=2)
    for place, bar in zip(places, bars, strict=True):
        if bar.interval is not None:
            axes.plot(bar.interval, (place, place), color="black", linewidth=0.9, solid_capstyle="butt", zorder=3)
    ends = [*scores, *(end for bar in bars if bar.interval is not None for end in bar.interval)]
    low, high = min(0.0, *ends), max(1.0, *ends)
    if max(high, -low) > _LARGEST_SPAN:
        axes.set_xscale("symlog", linthresh=_LINEAR_TO, linscale=0.5)
        axes.xaxis.set_major_locator(FixedLocator(_decades(low, high)))
        axes.xaxis.set_minor_locator(NullLocator())
        # One decade of space for the numbers next to the bars.
        axes.set_xlim(low * 6 if low < -_LINEAR_TO else -_LINEAR_TO * (1.0 if low < 0 else 0.0), high * 6)
    else:
        span = high - low
        axes.xaxis.set_major_locator(MaxNLocator(8))
        axes.set_xlim(low - (0.12 * span if low < 0 else 0.0), high + 0.12 * span)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _percent(value)))
    for place, bar in zip(places, bars, strict=True):
        outermost = max(bar.score, bar.interval[1]) if bar.interval else bar.score
        if bar.score < 0:
            outermost = min(bar.score, bar.interval[0]) if bar.interval else bar.score
        axes.annotate(
            _percent(bar.score),
            (outermost, place),
            xytext=(3 if bar.score >= 0 else -3, 0),
            textcoords="offset points",
            ha="left" if bar.score >= 0 else "right",
            va="center",
            fontsize=7,
            color="0.25",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )
    axes.set_yticks(places, [bar.task.replace("_", " ") for bar in bars], fontsize=8)
    axes.set_ylim(-0.7, len(bars) - 0.3)
    _rows_frame(axes)
    axes.axvline(0.0, color="0.3", linewidth=0.8, zorder=2.5)


def _draw_lines(axes: Axes, lines: Mapping[str, float]) -> None:
    axes.axvline(1.0, color=_HUMAN, linewidth=1.0, linestyle=(0, (5, 3)), zorder=1.5)
    for name, value in lines.items():
        axes.axvline(value, color=GREEN, linewidth=1.2, zorder=1.6, label=f"{name} {_percent(value)}")
    if lines:
        axes.legend(loc="lower right", frameon=False)


def _decades(low: float, high: float) -> list[float]:
    """Return ticks at powers of ten on both sides of zero."""
    upward = [10.0**power for power in range(round(math.log10(_LINEAR_TO)), math.ceil(math.log10(high)) + 1)]
    downward = [-value for value in upward if value <= -low] if low < -_LINEAR_TO else []
    return [*sorted(downward), 0.0, *upward]


def _percent(value: float) -> str:
    text = f"{100 * value:,.0f} %" if abs(value) >= 0.1 or value == 0 else f"{100 * value:.1f} %"
    return text.replace("-", "\N{MINUS SIGN}")


def draw_sweep(panels: Mapping[str, Sequence[Row]], output: Path, *, title: str) -> None:
    """Draw a panel for each of ``panels`` to ``output``; if there are too many, only the last ones.

    Raises:
        PlotError: the picture cannot be written.

    """
    shown = dict(list(panels.items())[-_MAX_PANELS:])
    heights = [0.9 + 0.28 * len(rows) for rows in shown.values()]
    with drawn_to(output, (8.0, 0.7 + sum(heights))) as figure:
        figure.suptitle(title, fontweight="bold")
        panel_axes = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (name, rows) in zip(panel_axes, shown.items(), strict=True):
            places = range(len(rows))[::-1]  # the first row is at the top
            for place, row in zip(places, rows, strict=True):
                axes.scatter(row.runs, [place] * len(row.runs), s=14, color=ORANGE, alpha=0.8, linewidths=0, zorder=2)
                if row.interval is not None:
                    axes.plot(row.interval, (place, place), color=BLUE, linewidth=5, alpha=0.35, solid_capstyle="butt", zorder=1)
                axes.plot([row.centre], [place], marker="|", markersize=13, markeredgewidth=2.2, color=BLUE, zorder=3)
            axes.set_yticks(places, [row.label for row in rows])
            axes.set_ylim(-0.6, len(rows) - 0.4)
            axes.set_title(name, loc="left")
            _rows_frame(axes)
        figure.supxlabel("interquartile mean over seeds, its 95 % interval, and each run", fontsize=8)


def _rows_frame(axes: Axes) -> None:
    """Draw a grid of vertical lines, and no frame around the rows."""
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="x", color="0.9", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
