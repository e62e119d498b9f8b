"""Draws comparison.png: learning curves of the ablations with their 95 % intervals, and the final return of each seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.dice_statistics import Estimate, RunResult, Summary

# Okabe and Ito's colours, which remain distinguishable with all common colour blindness.
_COLOURS = {"dice": "#D55E00", "baseline": "#0072B2", "random": "#009E73", "entropy": "#CC79A7"}
_SPREAD = 0.28
"""Horizontal distance of the seeds of an ablation from its mark; neighbouring ablations are 1 apart."""


def draw(summaries: Sequence[Summary], results: Mapping[str, Sequence[RunResult]], path: Path, *, total: float, level: float) -> None:
    import matplotlib as mpl  # noqa: PLC0415  a second to load, wanted once
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"font.size": 9, "axes.titlesize": 10}):
        figure = Figure(figsize=(11.0, 4.6), layout="constrained", dpi=130)
        FigureCanvasAgg(figure)
        curves, finals = figure.subplots(1, 2, width_ratios=(1.6, 1.0), sharey=True)
        for summary in summaries:
            _draw_curve(curves, summary, total=total)
        for axes in (curves, finals):
            axes.grid(visible=True, color="0.9", linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.axhline(level, color="0.45", linewidth=0.9, linestyle=(0, (5, 3)))
        curves.text(0.0, level, f" {level:g}", va="bottom", color="0.35", fontsize=8)
        curves.set_title("games of training, under the temperatures they were played with", loc="left", fontweight="bold")
        curves.set_xlabel("environment frames (thousands)")
        curves.set_ylabel("mean return of a game")
        curves.set_xlim(0.0, total / 1e3)
        curves.legend(loc="center right", bbox_to_anchor=(1.0, 0.36), frameon=False)
        _draw_finals(finals, summaries, results)
        figure.savefig(path)


def _draw_curve(axes: Axes, summary: Summary, *, total: float) -> None:
    count = len(summary.curve)
    middles = (np.arange(count) + 0.5) * total / count / 1e3
    colour = _COLOURS[summary.ablation]
    label = f"{summary.ablation}: mean of {summary.num_seeds} seeds, 95 % interval"
    axes.plot(middles, [one.mean for one in summary.curve], color=colour, linewidth=1.8, label=label, zorder=3)
    lows, highs = [one.low for one in summary.curve], [one.high for one in summary.curve]
    axes.fill_between(middles, lows, highs, color=colour, alpha=0.18, linewidth=0, zorder=2)


def _draw_finals(axes: Axes, summaries: Sequence[Summary], results: Mapping[str, Sequence[RunResult]]) -> None:
    """Draw the scores of ``herd evaluate``: a dot for each seed, and a bar for the mean with its interval."""
    for place, summary in enumerate(summaries):
        colour = _COLOURS[summary.ablation]
        finals = [result.final for result in results[summary.ablation]]
        axes.scatter(place + np.linspace(-_SPREAD, _SPREAD, len(finals)), finals, s=16, color=colour, alpha=0.55, linewidth=0, zorder=2)
        one: Estimate = summary.final
        axes.vlines(place, one.low, one.high, color=colour, linewidth=2.2, zorder=3)
        axes.hlines(one.mean, place - _SPREAD, place + _SPREAD, color=colour, linewidth=2.2, zorder=3)
    axes.set_xticks(range(len(summaries)), [summary.ablation for summary in summaries])
    axes.set_xlim(-0.6, len(summaries) - 0.4)
    axes.set_title("games of the last checkpoint", loc="left", fontweight="bold")
