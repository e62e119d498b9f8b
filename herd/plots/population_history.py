"""What a population leaves on disk, as arrays: each member's points, the copies between members, and lines of descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from herd.config.population_journal import Began, JournalError, Lineages, journal_file, read_journal
from herd.config.run_files import AGENTS
from herd.plots.history import PlotError, read_points

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from herd.plots.averaging import FloatArray


@dataclass(frozen=True, slots=True)
class MemberHistory:
    """The points of one member in time order; P points."""

    number: int
    env_frames: FloatArray
    """[P], its own."""
    score: FloatArray
    """[P] mean capped human-normalised score where the run has human scores, else the mean raw return; both over the newest games."""
    fitness: FloatArray
    """[P] as the population sees it; NaN while too few games were played under its weights."""
    settings: dict[str, FloatArray]
    """[P] by dotted key: its numbers."""


class Segment(NamedTuple):
    """A stretch of a line of descent: this member's points in ``start < env_frames <= end``, its own count."""

    member: int
    start: float
    end: float
    age: float
    """Env frames behind the weights at ``start``: those of all ancestors."""


@dataclass(frozen=True, slots=True)
class PopulationHistory:
    """All members, in order, and who descends from whom."""

    members: list[MemberHistory]
    lineages: Lineages
    score_name: str

    @property
    def best(self) -> MemberHistory:
        """Of the greatest newest fitness; where none is known, of the greatest newest score."""

        def newest(values: FloatArray) -> float:
            known = values[np.isfinite(values)]
            return float(known[-1]) if len(known) else -np.inf

        return max(self.members, key=lambda member: (newest(member.fitness), newest(member.score)))

    def descent(self, member: int) -> list[Segment]:
        """The stretches of training behind the weights that a member has in the end, oldest first."""
        line = self.lineages.ancestry(member)
        segments: list[Segment] = []
        start, age, holder = 0.0, 0.0, line[0].donor if line else member
        for copy in line:
            segments.append(Segment(holder, start, copy.donor_env_frames, age))
            age += copy.donor_env_frames - start
            holder, start = copy.receiver, float(copy.env_frames)
        return [*segments, Segment(holder, start, np.inf, age)]


def read_population(run_dir: Path) -> PopulationHistory:
    """Read a run, a live one too.

    Raises:
        PlotError: it was no population, or its files cannot be read; one line.
    """
    try:
        events = read_journal(journal_file(run_dir))
    except JournalError as error:
        raise PlotError(str(error)) from error
    if not events or not isinstance(events[0], Began):
        raise PlotError(f"{run_dir}: was no population (population.strategy pbt): there is no {journal_file(run_dir).relative_to(run_dir)}")
    members = [_member(run_dir / AGENTS / str(agent), agent) for agent in range(len(events[0].members))]
    normalised = any(np.isfinite(member.score).any() for member, _ in members)
    chosen = [
        member if normalised else MemberHistory(member.number, member.env_frames, returns, member.fitness, member.settings)
        for member, returns in members
    ]
    score_name = "human-normalised score, capped" if normalised else "mean return"
    return PopulationHistory(chosen, Lineages(events), score_name)


def along(members: Sequence[MemberHistory], segments: Sequence[Segment], values: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """A line of descent through ``values`` [P], one array for each member: [Q] env frames behind the weights, and [Q] values."""
    ages, found = [], []
    for segment in segments:
        frames = members[segment.member].env_frames
        own = (frames > segment.start) & (frames <= segment.end)
        ages.append(frames[own] - segment.start + segment.age)
        found.append(values[segment.member][own])
    return np.concatenate(ages), np.concatenate(found)


def _member(directory: Path, number: int) -> tuple[MemberHistory, FloatArray]:
    """A member with its human-normalised score, and its mean returns."""
    points = read_points(directory)
    own = [point.get("population") or {} for point in points]
    keys = dict.fromkeys(key for each in own for key, value in each.get("settings", {}).items() if _is_number(value))
    settings = {key: np.array([_number(each.get("settings", {}).get(key)) for each in own]) for key in keys}
    member = MemberHistory(
        number=number,
        env_frames=_column(points, "env_frames"),
        score=_column(points, "human_normalised_mean_capped"),
        fitness=_column(own, "fitness"),
        settings=settings,
    )
    return member, _column(points, "episode_return_mean_100")


def _column(records: Sequence[dict[str, Any]], key: str) -> FloatArray:
    return np.array([_number(record.get(key)) for record in records])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> float:
    return float(value) if _is_number(value) else float("nan")
