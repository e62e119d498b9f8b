"""Draws a population over time: the members' scores, their settings and the family tree (IMPALA, Figures 5 and F.1).

The numbers come from each member's points, and the copies between members from the journal of the population.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from herd.protocols.population.journal import Began, Lineages, journal_file, read_journal
from herd.run.journals import mapping_in, number_in, read_points
from herd.run.paths import AGENTS
from herd.view.plots.figure import VERMILION, PlotError, check_output, drawn_to, x_scale
from herd.view.plots.history import column

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from herd.view.plots.averaging import FloatArray

_OTHERS = "0.65"
_NORMALISED = "human_normalised_mean_capped"


@dataclass(frozen=True, slots=True)
class MemberHistory:
    """The points of one member in time order; P points."""

    number: int
    env_frames: FloatArray
    """The member's own env frames, [P]."""
    score: FloatArray
    """Mean capped human-normalised score if the run has human scores, otherwise the mean raw return; over the newest games, [P]."""
    fitness: FloatArray
    """Fitness in the population, [P]; NaN while too few games have been played with its weights."""
    settings: dict[str, FloatArray]
    """Numeric settings, [P] by dotted key."""


class Segment(NamedTuple):
    """A stretch of a line of descent: this member's points in ``start < env_frames <= end``, its own count."""

    member: int
    start: float
    end: float
    age: float
    """Env frames behind the weights at ``start``, which are those of all ancestors."""


@dataclass(frozen=True, slots=True)
class PopulationHistory:
    """All members, in order, and their lineages."""

    members: list[MemberHistory]
    lineages: Lineages
    score_name: str

    @property
    def best(self) -> MemberHistory:
        """The member with the greatest newest fitness or, if none is known, with the greatest newest score."""

        def newest(values: FloatArray) -> float:
            known = values[np.isfinite(values)]
            return float(known[-1]) if len(known) else -np.inf

        return max(self.members, key=lambda member: (newest(member.fitness), newest(member.score)))

    @property
    def keys(self) -> list[str]:
        """The settings of which any member has a number, by dotted key."""
        return list(dict.fromkeys(key for member in self.members for key in member.settings))

    def setting(self, key: str) -> list[FloatArray]:
        """Return the values of a setting for every member, [P] each; NaN where it has no number."""
        return [member.settings.get(key, np.full(len(member.env_frames), np.nan)) for member in self.members]

    def descent(self, member: int) -> list[Segment]:
        """Return the segments of training behind a member's final weights, oldest first."""
        line = self.lineages.ancestry(member)
        segments: list[Segment] = []
        start, age, holder = 0.0, 0.0, line[0].donor if line else member
        for copy in line:
            segments.append(Segment(holder, start, copy.donor_env_frames, age))
            age += copy.donor_env_frames - start
            holder, start = copy.receiver, float(copy.env_frames)
        return [*segments, Segment(holder, start, np.inf, age)]


def plot_population(run_dir: Path, output: Path) -> None:
    """Draw scores, settings and the family tree of a run to ``output`` (.png, .pdf or .svg).

    Args:
        run_dir: directory of a run with a population; the run may be running.
        output: the picture; its folder is created.

    Raises:
        PlotError: there is no population, the kind of file is unknown, or files cannot be read or written; one line.

    """
    check_output(output)
    history = read_population(run_dir)
    keys = history.keys
    with drawn_to(output, (9.0, 2.4 * (2 + len(keys)) + 0.2 * len(history.members))) as figure:
        _draw(figure, history, keys)


def _draw(figure: Figure, history: PopulationHistory, keys: Sequence[str]) -> None:
    best = history.best
    segments = history.descent(best.number)
    unit, unit_name = x_scale(max(float(member.env_frames[-1]) for member in history.members))
    rows = figure.subplots(2 + len(keys), 1, sharex=True, squeeze=False)[:, 0]
    _draw_lines(rows[0], history, segments, [member.score for member in history.members], unit)
    rows[0].set_title(f"{history.score_name}: member {best.number}, the best at the end, and its ancestors", loc="left")
    rows[0].legend(loc="lower right", framealpha=0.8, fontsize=8)
    for axes, key in zip(rows[1:-1], keys, strict=True):
        values = history.setting(key)
        _draw_lines(axes, history, segments, values, unit, style="steps-post")
        if all((known > 0.0).all() for each in values if len(known := each[np.isfinite(each)])):
            axes.set_yscale("log")
        axes.set_title(key, loc="left")
    _draw_tree(rows[-1], history, segments, unit)
    rows[-1].set_xlabel(unit_name)


def _draw_lines(
    axes: Axes, history: PopulationHistory, segments: list[Segment], values: list[FloatArray], unit: float, *, style: str = "default"
) -> None:
    for number, (member, own) in enumerate(zip(history.members, values, strict=True)):
        label = "members, over their own frames" if not number else None
        axes.plot(member.env_frames / unit, own, color=_OTHERS, linewidth=0.9, label=label, drawstyle=style)
    ages, found = along(history.members, segments, values)
    line = "best member and ancestors, over the frames behind its weights"
    axes.plot(ages / unit, found, color=VERMILION, linewidth=1.8, label=line, drawstyle=style)
    axes.grid(alpha=0.25)


def _draw_tree(axes: Axes, history: PopulationHistory, segments: list[Segment], unit: float) -> None:
    """Draw a line for each member over its own frames and an arrow for each copy, with the ancestors of the best member in colour."""
    for member in history.members:
        axes.plot([0.0, member.env_frames[-1] / unit], [member.number] * 2, color=_OTHERS, linewidth=0.9)
    for segment in segments:
        end = min(segment.end, float(history.members[segment.member].env_frames[-1]))
        axes.plot([segment.start / unit, end / unit], [segment.member] * 2, color=VERMILION, linewidth=2.2)
    inherited = {(segment.member, segment.start) for segment in segments}
    for copy in history.lineages.copies:
        colour = VERMILION if (copy.receiver, float(copy.env_frames)) in inherited else _OTHERS
        axes.annotate(
            "",
            xy=(copy.env_frames / unit, copy.receiver),
            xytext=(copy.donor_env_frames / unit, copy.donor),
            arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.2 if colour == VERMILION else 0.8},
        )
    axes.set_yticks([member.number for member in history.members])
    axes.set_ylabel("member")
    axes.set_title("family tree: copies between members", loc="left")


def read_population(run_dir: Path) -> PopulationHistory:
    """Read a run, which may be running.

    Raises:
        FileError: the run is not a population, or its files cannot be read; one line.
    """
    events = list(read_journal(journal_file(run_dir)))
    began = next(iter(events), None)
    if not isinstance(began, Began):
        raise PlotError(
            f"{run_dir}: not a population (population.strategy pbt): it contains no {journal_file(run_dir).relative_to(run_dir)}"
        )
    curves = [read_points(run_dir / AGENTS / str(agent)) for agent in range(len(began.members))]
    normalised = any(number_in(point, _NORMALISED) is not None for points in curves for point in points)
    score, score_name = (_NORMALISED, "human-normalised score, capped") if normalised else ("episode_return_mean_100", "mean return")
    return PopulationHistory([_member(number, points, score) for number, points in enumerate(curves)], Lineages(events), score_name)


def along(members: Sequence[MemberHistory], segments: Sequence[Segment], values: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Follow a line of descent through ``values``, [P] for each member. Returns env frames behind the weights, [Q], and values, [Q]."""
    ages, found = [], []
    for segment in segments:
        frames = members[segment.member].env_frames
        own = (frames > segment.start) & (frames <= segment.end)
        ages.append(frames[own] - segment.start + segment.age)
        found.append(values[segment.member][own])
    return np.concatenate(ages), np.concatenate(found)


def _member(number: int, points: list[dict[str, Any]], score: str) -> MemberHistory:
    own = [mapping_in(point, "population") for point in points]
    chosen = [mapping_in(each, "settings") for each in own]
    keys = dict.fromkeys(key for each in chosen for key in each if number_in(each, key) is not None)
    return MemberHistory(
        number=number,
        env_frames=column(points, "env_frames"),
        score=column(points, score),
        fitness=column(own, "fitness"),
        settings={key: column(chosen, key) for key in keys},
    )
