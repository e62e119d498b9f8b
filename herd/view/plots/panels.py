"""The panels of learning curves: which there are, and how each is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from herd.view.plots.averaging import MIN_RUNS_TO_RESAMPLE, Curve
from herd.view.plots.figure import x_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from herd.view.plots.averaging import FloatArray
    from herd.view.plots.history import RunHistory, XAxis

PanelSet = Literal["returns", "learning"]
MIN_TASKS_TOGETHER = 4
"""With fewer tasks, the interquartile mean excludes none."""
_NOT_OF_LEARNING = frozenset(
    {
        *("wall_seconds", "env_frames", "agent_steps", "learner_updates", "episodes", "frames_per_second", "episode_return_mean_100"),
        *("human_normalised_mean_capped", "task_frames_spread", "policy_lag_max"),
    }
)
"""Numbers of a point that have no panel of their own: counts, and numbers that the panels of returns show."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of a picture."""

    key: str
    """Name in the file of numbers."""
    title: str
    unit: str
    """Label of the vertical axis."""
    kind: Literal["task", "tasks", "interquartile", "speed", "learning"]
    lowest: float | None = None
    """Lower limit of the vertical axis; lower values are cut off."""
    highest: float | None = None
    is_log: bool = False

    def values(self, run: RunHistory) -> FloatArray:
        """Return the values of a run, [P]; NaN where there is none. For ``interquartile`` see `task_scores`."""
        if self.kind == "task":
            return run.episode_returns.get(self.key, _nothing(run))
        values = run.numbers.get(self.key, _nothing(run))
        if self.kind == "speed" or self.key == "policy_lag_mean":
            # Before the first update there is nothing to measure.
            values = np.where(run.learner_updates > 0, values, np.nan) if np.isfinite(run.learner_updates).any() else values
        return np.where(values > 0, values, np.nan) if self.is_log else values


RETURN_UNIT = "episode return\n(mean of last 100 games)"
SPEED = Panel("frames_per_second", "throughput", "frames per second", "speed", lowest=0.0)
_MEAN_CAPPED = Panel("human_normalised_mean_capped", "human-normalised, mean capped", "random 0, human 1", "tasks")
INTERQUARTILE = Panel("human_normalised_interquartile_mean", "human-normalised, interquartile mean", "random 0, human 1", "interquartile")
_LEARNING = (
    Panel("loss_total", "total loss", "", "learning"),
    Panel("loss_policy", "policy loss", "", "learning"),
    Panel("loss_value", "value loss", "", "learning"),
    Panel("entropy", "entropy of the policy", "nats", "learning", lowest=0.0),
    Panel("health.explained_variance", "explained variance of the values", "1 is perfect", "learning", lowest=-1.0, highest=1.0),
    Panel("health.update_kl", "KL of one update", "nats, logarithmic", "learning", is_log=True),
    Panel("policy_lag_mean", "policy lag", "learner updates", "learning", lowest=0.0),
    Panel("gradient_norm", "norm of the gradient", "before clipping", "learning", lowest=0.0),
    Panel("clipped_share", "share of updates that are clipped", "", "learning", lowest=0.0, highest=1.0),
    Panel("health.effective_sample_size", "effective sample size", "share of the samples", "learning", lowest=0.0, highest=1.0),
    Panel("learning_rate", "learning rate", "", "learning", lowest=0.0),
)


def return_panels(runs: Sequence[RunHistory]) -> list[Panel]:
    """Return a panel for each task, the panels of all tasks together, and throughput."""
    tasks = list(dict.fromkeys(task for run in runs for task in run.episode_returns))
    panels = [Panel(task, task.replace("_", " "), RETURN_UNIT, "task") for task in tasks]
    if len(tasks) > 1 and any(_MEAN_CAPPED.key in run.numbers for run in runs):
        panels.append(_MEAN_CAPPED)
    if any(len(run.task_scores) >= MIN_TASKS_TOGETHER for run in runs):
        panels.append(INTERQUARTILE)
    return [*panels, SPEED]


def learning_panels(runs: Sequence[RunHistory]) -> list[Panel]:
    """Return the panels that all losses share, then those of the losses' own metrics. Panels without numbers are left out."""
    named = [name for run in runs for name in run.numbers if name not in _NOT_OF_LEARNING]
    known = {panel.key for panel in _LEARNING}
    others = [Panel(name, name.replace("_", " ").replace("health.", ""), "", "learning") for name in dict.fromkeys(named)]
    return [*(panel for panel in _LEARNING if panel.key in named), *(panel for panel in others if panel.key not in known)]


def task_scores(run: RunHistory) -> FloatArray:
    """Return human-normalised scores, [P, K], ordered by task name."""
    return np.stack([run.task_scores[task] for task in sorted(run.task_scores)], axis=-1)


def _nothing(run: RunHistory) -> FloatArray:
    return np.full(len(run.env_frames), np.nan)


Style = Literal["-", "--", ":", "-."]
References = Mapping[str, tuple[float, float]]
"""(random, human) score by task."""
_LONGEST_TRANSIENT = 3.0
"""If 4 % of the points of a panel would make it higher by more than this factor, they are cut off."""
# A reference score that would compress the curves into less than a third of the panel is written at its edge instead.
_LONGEST_STRETCH = 3.0


@dataclass(frozen=True, slots=True)
class Line:
    """One curve of one panel."""

    panel: Panel
    label: str
    colour: str
    style: Style
    curve: Curve
    thin: bool
    """Whether it is a single run behind the mean of its experiment, or single updates behind their trailing mean."""
    is_evaluation: bool = False
    """Whether it shows evaluations of frozen weights, next to the returns of training."""


def draw_panels(figure: Figure, lines: Sequence[Line], panels: Sequence[Panel], *, x: XAxis, references: References) -> None:
    """Draw all panels and one legend."""
    columns = _num_columns(len(panels))
    scale = _scale_of(lines, x)
    for index, (panel, axes) in enumerate(zip(panels, _axes(figure, panels, columns), strict=True)):
        _draw_panel(axes, panel, [line for line in lines if line.panel == panel], scale=scale, references=references)
        axes.set_title(panel.title, loc="left", fontweight="bold")
        if index + columns < len(panels):
            axes.set_xlabel("")
        if panel.kind == "task" and index % columns:
            axes.set_ylabel("")
    _draw_legend(figure, lines)


def _scale_of(lines: Sequence[Line], x: XAxis) -> tuple[float, str]:
    """Return the unit of the horizontal axis and its label."""
    largest = max((float(line.curve.x[-1]) for line in lines if len(line.curve.x)), default=0.0)
    if x == "env_frames":
        return x_scale(largest)
    if largest >= 2 * 3600:
        return 3600.0, "running time (hours)"
    return (60.0, "running time (minutes)") if largest >= 120 else (1.0, "running time (seconds)")


def _num_columns(panels: int) -> int:
    return min(panels, 3) if panels <= 12 else math.ceil(math.sqrt(panels))


def _axes(figure: Figure, panels: Sequence[Panel], columns: int) -> list[Axes]:
    count = len(panels)
    if count == 2 and panels[0].kind == "task":  # with one task, its curve is the important one
        figure.set_size_inches(10.0, 4.2)
        return list(figure.subplots(1, 2, width_ratios=(1.7, 1.0)))
    rows = math.ceil(count / columns)
    figure.set_size_inches(3.7 * columns, 2.9 * rows + 0.5)
    grid: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[count:]:
        axes.remove()
    return grid[:count]


def _draw_panel(axes: Axes, panel: Panel, lines: Sequence[Line], *, scale: tuple[float, str], references: References) -> None:
    """Draw one panel, without title and legend."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter  # noqa: PLC0415

    unit, unit_name = scale
    for line in lines:
        curve = line.curve
        xs = curve.x / unit
        if line.is_evaluation:
            below, above = np.nan_to_num(curve.mean - curve.low), np.nan_to_num(curve.high - curve.mean)
            axes.plot(xs, curve.mean, color=line.colour, linewidth=0.9, linestyle=":", marker="D", markersize=3.5, zorder=4)
            axes.errorbar(xs, curve.mean, yerr=(below, above), fmt="none", ecolor=line.colour, elinewidth=0.9, zorder=4)
            continue
        if line.thin:
            axes.plot(xs, curve.mean, color=line.colour, linewidth=0.7, alpha=0.35, zorder=2)
            continue
        # A single point needs a marker, because it has no line.
        marker = "o" if len(xs) == 1 else None
        axes.plot(xs, curve.mean, color=line.colour, linestyle=line.style, linewidth=1.6, zorder=3, marker=marker, markersize=4)
        if curve.has_band and panel.kind != "speed":  # for speed, the runs behind the mean are enough
            axes.fill_between(xs, curve.low, curve.high, color=line.colour, alpha=0.18, linewidth=0, zorder=1)
    is_empty = not any(len(line.curve.mean) for line in lines)
    if is_empty:
        missing = "no value above 0" if panel.is_log else "no game has ended yet" if panel.kind == "task" else "not measured yet"
        axes.text(0.5, 0.5, missing, transform=axes.transAxes, ha="center", va="center", color="0.45")
        axes.set_yticks([])
    elif not panel.is_log:
        axes.set_ylim(*_limits(panel, lines))
    axes.set_xlabel(unit_name)
    axes.set_ylabel(panel.unit)
    axes.set_xlim(left=0.0)
    axes.grid(visible=True, color="0.9", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter(FuncFormatter(_tick_text))
    if panel.is_log and not is_empty:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axes.yaxis.set_major_formatter(FuncFormatter(_tick_text))
        axes.yaxis.set_minor_formatter(NullFormatter())
    if panel.kind == "task" and panel.key in references:
        _draw_references(axes, references[panel.key])


def _limits(panel: Panel, lines: Sequence[Line]) -> tuple[float, float]:
    """Return limits that include everything that is drawn. For losses, a few points at the start may be cut off for readability."""
    curves = [line.curve for line in lines]
    values = np.concatenate([part[np.isfinite(part)] for curve in curves for part in (curve.mean, curve.low, curve.high)])
    low, high = float(values.min()), float(values.max())
    if panel.kind == "learning":
        inner_low, inner_high = (float(end) for end in np.quantile(values, (0.02, 0.98)))
        if high - low > _LONGEST_TRANSIENT * (inner_high - inner_low) > 0.0:
            low, high = inner_low, inner_high
    low = 0.0 if panel.lowest == 0.0 else low
    margin = 0.06 * (high - low) or 0.05 * max(abs(high), 1.0)
    low, high = low - margin, high + margin
    if panel.lowest is not None:
        low = max(low, panel.lowest)
    if panel.highest is not None:
        high = panel.highest + 0.03 if panel.lowest == 0.0 else min(high, panel.highest + 0.03)
    return (low, high) if low < high else (low, low + 1.0)


def _draw_references(axes: Axes, references: tuple[float, float]) -> None:
    """Draw the random and human scores as dashed lines. A score far outside the curves is only written at the edge."""
    from matplotlib.patheffects import withStroke  # noqa: PLC0415

    low, high = axes.get_ylim()
    halo = [withStroke(linewidth=3, foreground=axes.get_facecolor())]  # a curve may lie behind a label
    far_above = []
    # Labels are placed away from a rising curve: the human score at its beginning, the random score at its end.
    for name, score, at, side in zip(("random", "human"), references, (0.99, 0.01), ("right", "left"), strict=True):
        new_low, new_high = min(low, score), max(high, score)
        text = f"{name} {_tick_text(score)}"
        if new_high - new_low > _LONGEST_STRETCH * (high - low):
            if score > high:
                far_above.append(f"{text} ↑")
            else:
                axes.text(
                    *(at, 0.02), f"{text} ↓", transform=axes.transAxes, ha=side, va="bottom", color="0.35", fontsize=8, path_effects=halo
                )
            continue
        margin = 0.06 * (new_high - new_low)
        axes.set_ylim(min(axes.get_ylim()[0], score - margin), max(axes.get_ylim()[1], score + margin))
        axes.axhline(score, color="0.45", linewidth=0.9, linestyle=(0, (5, 3)), zorder=1.5)
        axes.annotate(
            text,
            (at, score),
            xycoords=axes.get_yaxis_transform(),
            xytext=(0, 2),
            textcoords="offset points",
            ha=side,
            va="bottom",
            color="0.35",
            fontsize=8,
            path_effects=halo,
        )
    if far_above:  # beside the title, where no curve is
        axes.text(1.0, 1.02, "  ".join(far_above), transform=axes.transAxes, ha="right", va="bottom", color="0.35", fontsize=8)


def _draw_legend(figure: Figure, lines: Sequence[Line]) -> None:
    """Draw a legend of the lines. A single run needs none."""
    from matplotlib.lines import Line2D  # noqa: PLC0415

    named: dict[str, Line] = {}
    for line in lines:
        if not line.thin and not line.is_evaluation:
            named.setdefault(line.label, line)
    handles = []
    for label, line in named.items():
        if len(named) > 1 or line.curve.num_runs > 1:
            text = f"{label}{_band_text(line.curve.num_runs)}"
            handles.append(Line2D([], [], color=line.colour, linestyle=line.style, linewidth=1.8, label=text))
    if any(line.is_evaluation for line in lines):
        text = "evaluation of frozen weights, 95 %"
        handles.append(Line2D([], [], color="0.35", linewidth=0.9, linestyle=":", marker="D", markersize=3.5, label=text))
    if handles:
        longest = max(len(str(handle.get_label())) for handle in handles)
        columns = max(1, int(figure.get_size_inches()[0] * 11 / (longest + 8)))  # about 11 characters of 9 points an inch
        figure.legend(handles=handles, loc="outside lower center", ncols=min(columns, len(handles)), frameon=False)


def _band_text(num_runs: int) -> str:
    """Return ``: mean of 3 runs, band from lowest to highest``; empty for one run."""
    if num_runs < 2:
        return ""
    band = "band from lowest to highest" if num_runs < MIN_RUNS_TO_RESAMPLE else "95 % bootstrap interval"
    return f": mean of {num_runs} runs, {band}"


def _tick_text(value: float, _position: int | None = None) -> str:
    """Format a number with thousands separators and a typographic minus sign; small numbers keep their digits."""
    small = f"{value:.10f}".rstrip("0") if 1e-7 < abs(value) < 1e-4 else f"{value:,.4g}"
    text = f"{value:,.0f}" if abs(value) >= 1000 else small
    return text.replace("-", "\N{MINUS SIGN}")
