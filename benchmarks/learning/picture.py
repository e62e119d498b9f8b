"""Draws the curves of a recipe's seeds over frames and over minutes, one row per game, with results of others at equal frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.learning.suites import others_curves, others_levels
from benchmarks.pictures import plain
from herd.view.plots.figure import drawn_to

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.learning.results import RunResult

# Okabe and Ito's colours, which remain distinguishable with all common colour blindness.
_OWN = "#D55E00"
_OTHERS = ("#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_NETWORKS_SHOWN = ("DQN (nature)", "Rainbow (nature)", "IQN (impala)", "PPO (impala)")


def draw(results: Sequence[RunResult], path: Path, *, title: str) -> None:
    games = list(dict.fromkeys(result.game for result in results))
    with drawn_to(path, (11.0, 1.0 + 3.2 * len(games))) as figure:
        figure.suptitle(title, fontweight="bold")
        rows = figure.subplots(len(games), 2, squeeze=False)
        for (over_frames, over_minutes), game in zip(rows, games, strict=True):
            own = [result for result in results if result.game == game]
            for result in own:
                frames, minutes, returns = zip(*result.curve, strict=True)
                label = f"Herd, {len(own)} seed{'s' if len(own) > 1 else ''}" if result is own[0] else None
                over_frames.plot([each / 1e6 for each in frames], returns, color=_OWN, linewidth=1.2, alpha=0.8, label=label, zorder=3)
                over_minutes.plot(minutes, returns, color=_OWN, linewidth=1.2, alpha=0.8, zorder=3)
            _draw_others(over_frames, game, max(result.env_frames for result in own) / 1e6)
            for axes, label in ((over_frames, "env frames (millions)"), (over_minutes, "minutes")):
                plain(axes, label)
                axes.set_axisbelow(True)
                axes.set_xlim(left=0.0)
            over_frames.set_ylabel(f"{game}: return, last 100 games")
            # Beside the panels: within them it would lie over curves in some game.
            handles, labels = over_frames.get_legend_handles_labels()
            over_minutes.legend(handles, labels, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)


def _draw_others(axes: Axes, game: str, most_millions: float) -> None:
    colours = iter(_OTHERS)
    for curve in others_curves(game):
        points = [
            (frames / 1e6, value) for frames, value in zip(curve.env_frames, curve.returns, strict=True) if frames / 1e6 <= most_millions
        ]
        if curve.name in _NETWORKS_SHOWN and points:
            colour = next(colours)
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.0, linestyle="--", marker=".", label=curve.name, zorder=2)
    shown = [each for each in others_levels(game) if each.env_frames / 1e6 <= 1.3 * most_millions]
    for name in dict.fromkeys(each.name for each in shown):
        reached = [(each.env_frames / 1e6, each.level) for each in shown if each.name == name]
        axes.plot(*zip(*reached, strict=True), color=next(colours), linestyle="", marker="*", markersize=9, label=f"{name}: reached")
