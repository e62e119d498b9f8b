"""Draws a population over time: the members' scores, their settings and the family tree (IMPALA, Figures 5 and F.1)."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np

from herd.view.plots.history import PlotError
from herd.view.plots.population_history import PopulationHistory, Segment, along, read_population

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from herd.view.plots.averaging import FloatArray

_SUFFIXES = (".png", ".pdf", ".svg")
_BEST = "#D55E00"
_OTHERS = "0.65"


def plot_population(run_dir: Path, output: Path, *, data: Path | None = None) -> None:
    """Draw scores, settings and the family tree of a run to ``output`` (.png, .pdf or .svg).

    Args:
        run_dir: directory of a run with a population; the run may be running.
        output: the picture; its folder is created.
        data: .csv file for the numbers that are drawn: a row for each point of each member, and of the best member's line.

    Raises:
        PlotError: there is no population, the kind of file is unknown, or files cannot be read or written; one line.

    """
    if output.suffix.lower() not in _SUFFIXES:
        raise PlotError(f"{output}: the name of a plot must end in {', '.join(_SUFFIXES)}")
    history = read_population(run_dir)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _draw(history, output)
        if data is not None:
            data.parent.mkdir(parents=True, exist_ok=True)
            _write_data(history, data)
    except OSError as error:
        raise PlotError(f"cannot write {error.filename or output}: {error.strerror or error}") from error


def _draw(history: PopulationHistory, output: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415 (half a second; only drawing pays for it)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    best = history.best
    segments = history.descent(best.number)
    unit, unit_name = _x_unit(max(float(member.env_frames[-1]) for member in history.members))
    keys = _keys(history)
    with mpl.rc_context({"font.size": 9, "axes.titlesize": 10, "svg.hashsalt": "herd"}):
        figure = Figure(figsize=(9.0, 2.4 * (2 + len(keys)) + 0.2 * len(history.members)), layout="constrained", dpi=150)
        FigureCanvasAgg(figure)
        rows = figure.subplots(2 + len(keys), 1, sharex=True, squeeze=False)[:, 0]
        _draw_lines(rows[0], history, segments, [member.score for member in history.members], unit)
        rows[0].set_title(f"{history.score_name}: member {best.number}, the best at the end, and its ancestors", loc="left")
        rows[0].legend(loc="lower right", framealpha=0.8, fontsize=8)
        for axes, key in zip(rows[1:-1], keys, strict=True):
            values = _setting(history, key)
            _draw_lines(axes, history, segments, values, unit, style="steps-post")
            if all((known > 0.0).all() for each in values if len(known := each[np.isfinite(each)])):
                axes.set_yscale("log")
            axes.set_title(key, loc="left")
        _draw_tree(rows[-1], history, segments, unit)
        rows[-1].set_xlabel(unit_name)
        figure.savefig(output)


def _draw_lines(
    axes: Axes, history: PopulationHistory, segments: list[Segment], values: list[FloatArray], unit: float, *, style: str = "default"
) -> None:
    for number, (member, own) in enumerate(zip(history.members, values, strict=True)):
        label = "members, over their own frames" if not number else None
        axes.plot(member.env_frames / unit, own, color=_OTHERS, linewidth=0.9, label=label, drawstyle=style)
    ages, found = along(history.members, segments, values)
    line = "best member and ancestors, over the frames behind its weights"
    axes.plot(ages / unit, found, color=_BEST, linewidth=1.8, label=line, drawstyle=style)
    axes.grid(alpha=0.25)


def _draw_tree(axes: Axes, history: PopulationHistory, segments: list[Segment], unit: float) -> None:
    """Draw a line for each member over its own frames and an arrow for each copy, with the ancestors of the best member in colour."""
    for member in history.members:
        axes.plot([0.0, member.env_frames[-1] / unit], [member.number] * 2, color=_OTHERS, linewidth=0.9)
    for segment in segments:
        end = min(segment.end, float(history.members[segment.member].env_frames[-1]))
        axes.plot([segment.start / unit, end / unit], [segment.member] * 2, color=_BEST, linewidth=2.2)
    inherited = {(segment.member, segment.start) for segment in segments}
    for copy in history.lineages.copies:
        colour = _BEST if (copy.receiver, float(copy.env_frames)) in inherited else _OTHERS
        axes.annotate(
            "",
            xy=(copy.env_frames / unit, copy.receiver),
            xytext=(copy.donor_env_frames / unit, copy.donor),
            arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.2 if colour == _BEST else 0.8},
        )
    axes.set_yticks([member.number for member in history.members])
    axes.set_ylabel("member")
    axes.set_title("family tree: copies between members", loc="left")


def _keys(history: PopulationHistory) -> list[str]:
    return list(dict.fromkeys(key for member in history.members for key in member.settings))


def _setting(history: PopulationHistory, key: str) -> list[FloatArray]:
    """Return the values of a setting for every member; NaN where it has no number."""
    return [member.settings.get(key, np.full(len(member.env_frames), np.nan)) for member in history.members]


def _x_unit(largest: float) -> tuple[float, str]:
    if largest >= 2e6:
        return 1e6, "environment frames (millions)"
    return (1e3, "environment frames (thousands)") if largest >= 2e3 else (1.0, "environment frames")


def _write_data(history: PopulationHistory, path: Path) -> None:
    keys = _keys(history)
    segments = history.descent(history.best.number)
    columns = [[member.score for member in history.members], *(_setting(history, key) for key in keys)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["line", "env_frames", "score", *keys])
        for member in history.members:
            rows = zip(member.env_frames, *(column[member.number] for column in columns), strict=True)
            writer.writerows([f"member {member.number}", f"{x:.0f}", *map(_text, row)] for x, *row in rows)
        found = [along(history.members, segments, column) for column in columns]
        best = zip(found[0][0], *(values for _, values in found), strict=True)
        writer.writerows(["best", f"{age:.0f}", *map(_text, row)] for age, *row in best)


def _text(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.8g}"
