"""Draws soak.png: recovery times by fault, the return, and the memory of every process."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from benchmarks.soak.faults import CATALOGUE, KindName
from herd.view.plots.figure import COLOURS, drawn_to

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

_MEGABYTE = 1 << 20


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw the report's three series."""
    with drawn_to(path, (10.0, 10.5)) as figure:
        # Each has its own margins, because the first has long labels.
        parts: Any = figure.subfigures(3, 1, height_ratios=(1.5, 1, 1.3))
        for part, draw_part in zip(parts, (_draw_recoveries, _draw_curve, _draw_memory), strict=True):
            axes = part.subplots()
            axes.spines[["top", "right"]].set_visible(False)
            draw_part(axes, report)


def _draw_recoveries(axes: Axes, report: dict[str, Any]) -> None:
    """Draw a row for each kind: every recovery as a dot, the median as a line."""
    by_kind: dict[KindName, list[float]] = defaultdict(list)
    for event in report["events"]:
        for fault in event["faults"]:
            if event["recovery_seconds"] is not None:
                by_kind[fault["kind"]].append(event["recovery_seconds"])
    kinds = sorted(by_kind, key=lambda kind: statistics.median(by_kind[kind]))
    for row, kind in enumerate(kinds):
        seconds = by_kind[kind]
        # Equal values are drawn next to each other, on five tracks in turn.
        axes.scatter(
            seconds, [row + 0.12 * (number % 5 - 2) for number in range(len(seconds))], s=16, color=COLOURS[0], alpha=0.55, linewidth=0
        )
        axes.vlines(
            statistics.median(seconds), row - 0.36, row + 0.36, color=COLOURS[1], linewidth=2.2, label="median" if row == 0 else "_other"
        )
    axes.set_yticks(range(len(kinds)), [f"{CATALOGUE[kind].name} ({len(by_kind[kind])})" for kind in kinds])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(left=0)
    axes.grid(visible=True, axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.set_xlabel("seconds until all recovered")
    axes.set_title(f"Recovery from {sum(map(len, by_kind.values()))} faults", loc="left", fontweight="bold")
    if kinds:
        axes.legend(frameon=False, loc="lower right")


def _draw_curve(axes: Axes, report: dict[str, Any]) -> None:
    points = [point for point in report["curve"] if point["mean_return"] is not None]
    axes.plot([point["at"] / 60 for point in points], [point["mean_return"] for point in points], color=COLOURS[0], linewidth=1.4)
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.12 * (high - low), high)
    faults = [event["at"] / 60 for event in report["events"]]
    axes.plot(faults, [0.03] * len(faults), "|", color="0.45", markersize=7, markeredgewidth=0.7, transform=axes.get_xaxis_transform())
    axes.set_ylabel("mean of 100 games")
    axes.set_title("Return; each tick below it is a fault", loc="left", fontweight="bold")
    axes.set_xlim(0, report["seconds"] / 60)


def _draw_memory(axes: Axes, report: dict[str, Any]) -> None:
    for number, (name, samples) in enumerate(report["resident"].items()):
        colour, style = COLOURS[number % len(COLOURS)], "-" if number < len(COLOURS) else ":"
        # One line per incarnation, with gaps between them. An ending process has no memory.
        by_pid: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for at, pid, size in samples:
            if size > 0:
                by_pid[pid].append((at / 60, size / _MEGABYTE))
        for first, points in enumerate(by_pid.values()):
            label = name if first == 0 else None
            axes.plot(*zip(*points, strict=True), color=colour, linestyle=style, linewidth=1.4, label=label)
    axes.set_ylabel("resident memory, MiB")
    axes.set_xlabel("minutes")
    axes.set_xlim(0, report["seconds"] / 60)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.set_title("Memory of each process; gaps are restarts", loc="left", fontweight="bold")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
