"""soak.png: recovery of every fault, the learning curve, and the memory of every process, over the same clock."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

# Okabe and Ito's colours, told apart with every common colour blindness.
COLOURS = {
    "kill": "#D55E00",
    "stop": "#0072B2",
    "stop_long": "#000000",
    "cut": "#009E73",
    "stall": "#CC79A7",
    "slow": "#E69F00",
    "lose": "#7F5539",
    "deaf": "#5E548E",
    "move": "#56B4E9",
}
_MEGABYTE = 1 << 20


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw the report's three series."""
    import matplotlib as mpl  # noqa: PLC0415  a second to load, wanted once

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  after the backend is chosen

    figure, (recoveries, curve, memory) = plt.subplots(3, 1, figsize=(10, 9), sharex=True, layout="constrained")
    _draw_recoveries(recoveries, report)
    _draw_curve(curve, report)
    _draw_memory(memory, report)
    memory.set_xlabel("minutes")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_recoveries(axes: Axes, report: dict[str, Any]) -> None:
    by_kind: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in report["events"]:
        for fault in event["faults"]:
            if event["recovery_seconds"] is not None:
                by_kind[fault["kind"]].append((event["at"] / 60, event["recovery_seconds"]))
    for kind, points in by_kind.items():
        axes.scatter([at for at, _ in points], [seconds for _, seconds in points], s=14, color=COLOURS[kind], label=kind)
    axes.set_ylabel("recovery, s")
    axes.set_ylim(bottom=0)
    if by_kind:
        axes.legend(ncols=len(by_kind), fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.2))


def _draw_curve(axes: Axes, report: dict[str, Any]) -> None:
    points = [point for point in report["curve"] if point["mean_return"] is not None]
    axes.plot([point["at"] / 60 for point in points], [point["mean_return"] for point in points], color="#0072B2", linewidth=1)
    axes.set_ylabel("mean return, 100 games")
    for event in report["events"]:
        axes.axvline(event["at"] / 60, color=COLOURS[event["faults"][0]["kind"]], alpha=0.25, linewidth=0.6)


def _draw_memory(axes: Axes, report: dict[str, Any]) -> None:
    colours = list(COLOURS.values())
    for number, (name, samples) in enumerate(report["resident"].items()):
        # One line per incarnation: between them the process was not there.
        by_pid: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for at, pid, size in samples:
            by_pid[pid].append((at / 60, size / _MEGABYTE))
        for first, points in enumerate(by_pid.values()):
            axes.plot(*zip(*points, strict=True), color=colours[number % len(colours)], linewidth=1, label=name if first == 0 else None)
    axes.set_ylabel("resident, MiB")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, ncols=3)
