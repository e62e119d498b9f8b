"""Draws popart-scales.png: for each of the two tasks, the learning curves of the variants with their 95 % intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.intervals import curve_estimates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.popart_scales import Run

# Okabe and Ito's colours, which remain distinguishable with all common colour blindness.
_COLOURS = {"popart": "#D55E00", "multi_head": "#0072B2", "impala": "#009E73", "impala_clipped": "0.45"}


def draw(results: Mapping[str, Sequence[Run]], path: Path, *, env_frames: int, scale: float) -> None:
    import matplotlib as mpl  # noqa: PLC0415  a second to load, wanted once
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"font.size": 9, "axes.titlesize": 10}):
        figure = Figure(figsize=(11.0, 4.4), layout="constrained", dpi=110)
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, 2, sharey=True)
        for task, (axes, factor) in enumerate(zip(panels, (1.0, scale), strict=True)):
            axes.set_title(f"the task with returns of {factor:g}", loc="left", fontweight="bold")
            axes.set_xlabel("environment frames of both tasks (thousands)")
            axes.grid(visible=True, color="0.9", linewidth=0.7)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_xlim(0.0, env_frames / 1e3)
            for variant, runs in results.items():
                curves = np.array([run.curves[task] for run in runs])
                middles = (np.arange(curves.shape[1]) + 0.5) * env_frames / curves.shape[1] / 1e3
                points = curve_estimates(curves)
                style = (0, (4, 2)) if variant == "impala_clipped" else "-"
                axes.plot(middles, [one.mean for one in points], color=_COLOURS[variant], linestyle=style, linewidth=1.8, label=variant)
                lows, highs = [one.low for one in points], [one.high for one in points]
                axes.fill_between(middles, lows, highs, color=_COLOURS[variant], alpha=0.18, linewidth=0)
        panels[0].set_ylabel("mean return of a game, divided by the task's scale")
        seeds = {len(runs) for runs in results.values()}
        title = f"mean and 95 % interval of {max(seeds)} seeds"
        panels[1].legend(loc="center right", frameon=False, title=title, alignment="left")
        figure.savefig(path)
