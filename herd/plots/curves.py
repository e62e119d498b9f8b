"""Learning curves, a panel each: tasks, their human-normalised score together, throughput. Repeats become a mean with its interval."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from herd.config.run_files import AGENTS
from herd.plots.averaging import Curve, FloatArray, mean_curve, single_curve, smoothed
from herd.plots.evaluations import evaluation_curves
from herd.plots.history import PlotError, RunHistory, XAxis, read_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Grouping = Literal["experiment", "none"]
Style = Literal["-", "--", ":", "-."]
ReferenceScores = Callable[[str, str], tuple[float, float] | None]

# Okabe and Ito's colours, told apart with every common colour blindness; black and yellow left out.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F5539", "#5E548E")
_STYLES: tuple[Style, ...] = ("-", "--", ":", "-.")
"""When the colours are used up, they begin again in the next."""
_THROUGHPUT = "throughput"
_ALL_TASKS = "human-normalised, mean capped"
_DATA_NAMES = {_THROUGHPUT: "frames_per_second", _ALL_TASKS: "human_normalised_mean_capped"}
"""Of panels in the file of numbers, where they differ from the title."""
# A reference score that would squeeze the curves into less than a third of the panel is named at its edge instead.
_LONGEST_STRETCH = 3.0
_SUFFIXES = (".png", ".pdf", ".svg")


@dataclass(frozen=True, slots=True)
class _Line:
    """One curve of one panel."""

    panel: str
    label: str
    colour: str
    style: Style
    curve: Curve
    thin: bool
    """A single run behind its experiment's mean."""
    is_evaluation: bool = False
    """Of frozen versions, beside the returns of training."""


@dataclass(frozen=True, slots=True)
class _Group:
    label: str
    runs: tuple[RunHistory, ...]


def plot_runs(
    run_dirs: Sequence[Path],
    output: Path,
    *,
    x: XAxis = "env_frames",
    smooth: int = 1,
    group: Grouping = "experiment",
    reference_scores: ReferenceScores | None = None,
    data: Path | None = None,
) -> None:
    """Draw the runs' learning curves into ``output`` (.png, .pdf or .svg) and their numbers into ``data`` (.csv).

    Runs with one name (up to a ``-seed3`` or ``-s3`` ending) and equal env, network, algorithm, optimizer and replay settings are repeats:
    ``group="experiment"`` draws their mean over the range that all have covered, with Student's 95 % t interval where
    there are at least three, and each thinly behind.
    ``group="none"`` draws every run by itself.

    Args:
        run_dirs: directories with ``metrics.jsonl`` and, for name, seed and tasks, ``config.yaml``; live runs too.
        output: the picture; its folder is made.
        x: ``env_frames`` (over all tasks) or ``wall_seconds`` (running time, restarts included).
        smooth: trailing mean over this many points of the log (1: none).
        group: see above.
        reference_scores: suite and task name -> (random, human) score or None. Drawn where all runs are of one suite.
        data: one row a point of every line drawn.

    Raises:
        PlotError: one line: nothing to plot, an unknown kind of file, an unreadable run.

    """
    if output.suffix.lower() not in _SUFFIXES:
        raise PlotError(f"{output}: a plot's name ends in {', '.join(_SUFFIXES)}")
    if smooth < 1:
        raise PlotError(f"smooth counts points and is at least 1, not {smooth}")
    histories = [read_run(directory) for directory in dict.fromkeys(run_dirs)]
    if not histories:
        raise PlotError("no run directories to plot")
    lines = _lines(_groups(histories, group), x, smooth)
    tasks = list(dict.fromkeys(task for history in histories for task in history.episode_returns))
    references = {}
    suites = {history.suite for history in histories}
    if reference_scores is not None and len(suites) == 1:
        [suite] = suites
        references = {task: found for task in tasks if (found := reference_scores(suite, task)) is not None}
    panels = [*tasks, *([_ALL_TASKS] if len(tasks) > 1 and any(line.panel == _ALL_TASKS for line in lines) else []), _THROUGHPUT]
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _draw(lines, panels, output, x=x, references=references)
        if data is not None:
            data.parent.mkdir(parents=True, exist_ok=True)
            _write_data(lines, data, x)
    except OSError as error:
        raise PlotError(f"cannot write {error.filename or output}: {error.strerror or error}") from error


def _groups(histories: Sequence[RunHistory], grouping: Grouping) -> list[_Group]:
    directories = _short_names([history.directory for history in histories])
    if grouping == "none":
        return [_Group(name, (history,)) for name, history in zip(directories, histories, strict=True)]
    members: dict[tuple[str, str], list[int]] = {}
    for index, history in enumerate(histories):
        members.setdefault((history.experiment, history.fingerprint), []).append(index)
    same_name = Counter(experiment for experiment, _ in members)
    num_names = len(same_name)
    groups = []
    for (experiment, _), indices in members.items():
        first, swept = directories[indices[0]], histories[indices[0]].sweep
        if swept:
            label = swept if num_names == 1 else f"{experiment}: {swept}"
        elif len(indices) == 1:
            label = first
        elif same_name[experiment] > 1:
            label = f"{experiment} ({first}, ...)"  # one name, other settings: tell them apart by a directory
        else:
            label = experiment
        groups.append(_Group(label, tuple(histories[index] for index in indices)))
    return groups


def _short_names(directories: Sequence[Path]) -> list[str]:
    """As many trailing parts of each path as tell all of them apart."""
    resolved = [directory.resolve() for directory in directories]
    shortest = 2 if any(path.parent.name == AGENTS for path in resolved) else 1  # "agents/0" says more than "0"
    for depth in range(shortest, max(len(path.parts) for path in resolved) + 1):
        names = [str(Path(*path.parts[-depth:])) for path in resolved]
        if len(set(names)) == len(set(resolved)):
            break
    return names


def _lines(groups: Sequence[_Group], x: XAxis, smooth: int) -> list[_Line]:
    lines = []
    for index, group in enumerate(groups):
        colour, style = _COLOURS[index % len(_COLOURS)], _STYLES[index // len(_COLOURS) % len(_STYLES)]
        names = _short_names([run.directory for run in group.runs])
        panels = list(dict.fromkeys(task for run in group.runs for task in run.episode_returns))
        for panel in (*panels, _ALL_TASKS, _THROUGHPUT):
            series = [(run.x(x), smoothed(_values(run, panel), smooth)) for run in group.runs]
            singles = [single_curve(xs, values) for xs, values in series]
            mean = mean_curve(series)
            if panel == _ALL_TASKS and (len(panels) < 2 or mean is None):
                continue
            if len(group.runs) > 1:
                lines += [
                    _Line(panel, name, colour, style, curve, thin=True) for name, curve in zip(names, singles, strict=True) if len(curve.x)
                ]
            if mean is not None:
                lines.append(_Line(panel, group.label, colour, style, mean, thin=False))
        for run, name in zip(group.runs, names, strict=True):
            evaluated = evaluation_curves(run, x)
            shown = [task for task in panels if task in evaluated]
            lines += [_Line(task, f"{name}: evaluation", colour, style, evaluated[task], thin=False, is_evaluation=True) for task in shown]
    return lines


def _values(run: RunHistory, panel: str) -> FloatArray:
    if panel == _THROUGHPUT:
        return run.frames_per_second
    if panel == _ALL_TASKS:
        return run.human_normalised
    return run.episode_returns.get(panel, np.full(len(run.env_frames), np.nan))


def _draw(lines: Sequence[_Line], panels: Sequence[str], output: Path, *, x: XAxis, references: Mapping[str, tuple[float, float]]) -> None:
    import matplotlib as mpl  # noqa: PLC0415 (half a second; only drawing pays for it)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    unit, unit_name = _x_unit(max((float(line.curve.x[-1]) for line in lines), default=0.0), x)
    with mpl.rc_context({"font.size": 9, "axes.titlesize": 10, "svg.hashsalt": "herd"}):
        figure = Figure(layout="constrained", dpi=150)
        FigureCanvasAgg(figure)
        columns = _num_columns(len(panels))
        for index, (panel, axes) in enumerate(zip(panels, _axes(figure, len(panels), columns), strict=True)):
            own = [line for line in lines if line.panel == panel]
            _draw_panel(axes, own, unit=unit)
            axes.set_title(panel.replace("_", " "), loc="left", fontweight="bold")
            axes.set_xlabel(unit_name if index + columns >= len(panels) else "")
            if panel == _THROUGHPUT:
                axes.set_ylabel("environment frames per second")
                axes.set_ylim(bottom=0.0)
            elif panel == _ALL_TASKS:
                axes.set_ylabel("random 0, human 1")
            elif index % columns == 0:
                axes.set_ylabel("episode return\n(mean of last 100 games)")
            if panel in references:
                _draw_references(axes, references[panel])
        _draw_legend(figure, lines)
        figure.savefig(output)


def _num_columns(panels: int) -> int:
    return min(panels, 3) if panels <= 12 else math.ceil(math.sqrt(panels))


def _axes(figure: Figure, count: int, columns: int) -> list[Axes]:
    if count == 2:  # one task: its curve is what the picture is for
        figure.set_size_inches(10.0, 4.2)
        return list(figure.subplots(1, 2, width_ratios=(1.7, 1.0)))
    rows = math.ceil(count / columns)
    figure.set_size_inches(3.7 * columns, 2.9 * rows + 0.5)
    grid: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[count:]:
        axes.remove()
    return grid[:count]


def _draw_panel(axes: Axes, lines: Sequence[_Line], *, unit: float) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415

    for line in lines:
        curve = line.curve
        xs = curve.x / unit
        if line.is_evaluation:
            bars = np.nan_to_num(curve.high - curve.mean)
            axes.plot(xs, curve.mean, color=line.colour, linewidth=0.9, linestyle=":", marker="D", markersize=3.5, zorder=4)
            axes.errorbar(xs, curve.mean, yerr=bars, fmt="none", ecolor=line.colour, elinewidth=0.9, zorder=4)
            continue
        if line.thin:
            axes.plot(xs, curve.mean, color=line.colour, linewidth=0.7, alpha=0.35, zorder=2)
            continue
        # A lone point has no line to show it.
        marker = "o" if len(xs) == 1 else None
        axes.plot(xs, curve.mean, color=line.colour, linestyle=line.style, linewidth=1.6, zorder=3, marker=marker, markersize=4)
        if curve.has_interval and line.panel != _THROUGHPUT:
            axes.fill_between(xs, curve.low, curve.high, color=line.colour, alpha=0.18, linewidth=0, zorder=1)
    # The limits follow the lines: a wide interval must not flatten what was measured.
    values = np.concatenate([line.curve.mean for line in lines] or [np.zeros(0)])
    if len(values):
        low, high = float(values.min()), float(values.max())
        margin = 0.06 * (high - low) or 0.05 * max(abs(high), 1.0)
        axes.set_ylim(low - margin, high + margin)
    else:
        axes.text(0.5, 0.5, "no game has ended yet", transform=axes.transAxes, ha="center", va="center", color="0.45")
        axes.set_yticks([])
    axes.set_xlim(left=0.0)
    axes.grid(visible=True, color="0.9", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter(FuncFormatter(_tick_text))


def _draw_references(axes: Axes, references: tuple[float, float]) -> None:
    """Random and human score as dashed lines; one far outside the curves is only named, at the edge it lies beyond."""
    low, high = axes.get_ylim()
    for name, score in zip(("random", "human"), references, strict=True):
        new_low, new_high = min(low, score), max(high, score)
        text = f"{name} {_tick_text(score)}"
        if new_high - new_low > _LONGEST_STRETCH * (high - low):
            above = score > high
            axes.text(
                *(0.99, 0.98 if above else 0.02),
                f"{text} {'↑' if above else '↓'}",
                transform=axes.transAxes,
                ha="right",
                va="top" if above else "bottom",
                color="0.35",
                fontsize=8,
            )
            continue
        margin = 0.06 * (new_high - new_low)
        axes.set_ylim(min(axes.get_ylim()[0], score - margin), max(axes.get_ylim()[1], score + margin))
        axes.axhline(score, color="0.45", linewidth=0.9, linestyle=(0, (5, 3)), zorder=1.5)
        axes.text(0.99, score, text, transform=axes.get_yaxis_transform(), ha="right", va="bottom", color="0.35", fontsize=8)


def _draw_legend(figure: Figure, lines: Sequence[_Line]) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415

    named: dict[str, _Line] = {}
    for line in lines:
        if not line.thin and not line.is_evaluation:
            named.setdefault(line.label, line)
    handles = []
    for label, line in named.items():
        count = line.curve.num_runs
        text = f"{label}: mean of {count} runs" if count > 1 else label
        text += ", 95 % t interval" if line.curve.has_interval else ""
        handles.append(Line2D([], [], color=line.colour, linestyle=line.style, linewidth=1.8, label=text))
    if any(line.is_evaluation for line in lines):
        text = "evaluation of frozen weights, 95 %"
        handles.append(Line2D([], [], color="0.35", linewidth=0.9, linestyle=":", marker="D", markersize=3.5, label=text))
    if handles:
        longest = max(len(str(handle.get_label())) for handle in handles)
        columns = max(1, int(figure.get_size_inches()[0] * 11 / (longest + 8)))  # about 11 characters of 9 points an inch
        figure.legend(handles=handles, loc="outside lower center", ncols=min(columns, len(handles)), frameon=False)


def _x_unit(largest: float, x: XAxis) -> tuple[float, str]:
    if x == "env_frames":
        if largest >= 2e6:
            return 1e6, "environment frames (millions)"
        return (1e3, "environment frames (thousands)") if largest >= 2e3 else (1.0, "environment frames")
    if largest >= 2 * 3600:
        return 3600.0, "running time (hours)"
    return (60.0, "running time (minutes)") if largest >= 120 else (1.0, "running time (seconds)")


def _tick_text(value: float, _position: int | None = None) -> str:
    """Thousands with separators, small numbers as they are, minus as a minus sign."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"
    return text.replace("-", "\N{MINUS SIGN}")


def _write_data(lines: Iterable[_Line], path: Path, x: XAxis) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["panel", "curve", "num_runs", x, "mean", "interval_low", "interval_high"])
        for line in lines:
            curve = line.curve
            panel = _DATA_NAMES.get(line.panel, line.panel)
            for row in zip(curve.x, curve.mean, curve.low, curve.high, strict=True):
                writer.writerow([panel, line.label, curve.num_runs, *("" if math.isnan(value) else f"{value:.8g}" for value in row)])
