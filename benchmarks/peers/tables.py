"""The table and the picture of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.intervals import curve_estimates, estimate, windowed
from benchmarks.peers.programs import PROGRAMS
from benchmarks.peers.tasks import TASKS
from benchmarks.pictures import plain
from herd.view.plots.figure import drawn_to

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.peers.runs import Run

# Okabe and Ito's colours, which remain distinguishable with all common colour blindness.
_COLOURS = {"herd": "#D55E00", "sb3": "#0072B2", "appo": "#009E73", "envpool": "#CC79A7"}
_WINDOWS = 40


def table(runs: Sequence[Run]) -> str:
    """Return a table in Markdown: a row for each task and program."""
    lines = [
        "| task, frames, score | program | return of the last games (95% interval), seeds | score reached | thousand frames until then"
        " | minutes until then | minutes in all | frames/s | core-seconds per million frames | GB |",
        "| --- " * 10 + "|",
    ]
    for task, goal in TASKS.items():
        for name, program in PROGRAMS.items():
            own = [run for run in runs if (run.task, run.program) == (task, name)]
            if not own:
                continue
            final = estimate([run.returns[-1] for run in own])
            interval = f" ({_figure(final.low)} to {_figure(final.high)})" if len(own) > 1 else ""
            reached = [(run, index) for run in own if (index := run.reached(goal.score)) is not None]
            alone = [run for run in own if run.alone]
            cells = [
                f"{task}, {goal.frames // 1000:,}k, {goal.score:g}",
                program.title,
                f"{_figure(final.mean)}{interval}, {len(own)}",
                f"{len(reached)} of {len(own)}",
                _range([run.frames[index] / 1000 for run, index in reached], ".0f"),
                _range([run.seconds[index] / 60 for run, index in reached if run.alone], ".1f"),
                _range([run.wall_seconds / 60 for run in alone], ".1f"),
                _range([rate for run in alone if (rate := run.frames_per_second()) is not None], ",.0f"),
                _range([run.core_seconds / (run.frames[-1] if goal.game else goal.frames) * 1e6 for run in alone], ",.0f"),
                _range([run.peak_bytes / 1e9 for run in alone], ".1f"),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    if any(TASKS[run.task].game for run in runs):
        lines += [
            "",
            "Frames of Atari are emulator frames: in Herd and the PPO on envpool four for each agent step, elsewhere counted one by one.",
        ]
    return "\n".join(lines) + "\n"


def _figure(value: float) -> str:
    """Return a return with at most one digit after the point."""
    return f"{value:,.1f}" if abs(value) < 100 else f"{value:,.0f}"


def _range(values: Sequence[float], form: str) -> str:
    """Return the median and, of several, the ends."""
    if not values:
        return "-"
    median = f"{float(np.median(values)):{form}}"
    return median if len(values) == 1 else f"{median} ({min(values):{form}} to {max(values):{form}})"


def draw(runs: Sequence[Run], path: Path) -> None:
    """Draw a row of two pictures for each task: returns over frames (means with intervals) and over minutes (runs that were alone)."""
    names = [task for task in TASKS if any(run.task == task for run in runs)]
    with drawn_to(path, (11.0, 0.6 + 2.7 * len(names))) as figure:
        for (over_frames, over_minutes), task in zip(figure.subplots(len(names), 2, squeeze=False), names, strict=True):
            for name, program in PROGRAMS.items():
                own = [run for run in runs if (run.task, run.program) == (task, name)]
                if not own:
                    continue
                colour, label = _COLOURS[name], f"{program.title}, {len(own)} seed{'s' if len(own) > 1 else ''}"
                if TASKS[task].game:  # runs end at the score, so they have different lengths
                    for run in own:
                        over_frames.plot(np.array(run.frames) / 1000, run.returns, color=colour, linewidth=1.2, label=label)
                        label = ""
                else:
                    _draw_mean(over_frames, own, total=TASKS[task].frames, colour=colour, label=label)
                for run in own:
                    if run.alone:
                        over_minutes.plot(np.array(run.seconds) / 60, run.returns, color=colour, linewidth=1.2)
            for axes, label in ((over_frames, "thousand env frames"), (over_minutes, "minutes since the command")):
                axes.axhline(TASKS[task].score, color="0.6", linewidth=0.8, linestyle="--")
                plain(axes, label)
                axes.set_xlim(left=0.0)
            over_frames.set_ylabel(f"{task}: return, last games")
            over_frames.legend(loc="best", frameon=False, fontsize=8)


def _draw_mean(axes: Axes, runs: Sequence[Run], *, total: int, colour: str, label: str) -> None:
    """Draw the mean of runs of ``total`` frames with its interval."""
    curves = [windowed(np.array(run.frames, float), np.array(run.returns, float), total=total, windows=_WINDOWS) for run in runs]
    estimates = curve_estimates(np.array(curves))
    places = np.arange(1, _WINDOWS + 1) / _WINDOWS * total / 1000
    known = places * 1000 >= max(run.frames[0] for run in runs)
    lows, means, highs = (np.array([getattr(each, name) for each in estimates])[known] for name in ("low", "mean", "high"))
    axes.plot(places[known], means, color=colour, label=label)
    axes.fill_between(places[known], lows, highs, color=colour, alpha=0.2, linewidth=0)
