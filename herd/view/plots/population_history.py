"""Reads a population's files as arrays: each member's points, the copies between members, and lines of descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from herd.protocols.population.journal import Began, Lineages, journal_file, read_journal
from herd.run.journals import read_points
from herd.run.paths import AGENTS
from herd.view.plots.history import PlotError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from herd.view.plots.averaging import FloatArray


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


def read_population(run_dir: Path) -> PopulationHistory:
    """Read a run, which may be running.

    Raises:
        JournalError: the run is not a population, or its files cannot be read; one line.
    """
    events = list(read_journal(journal_file(run_dir)))
    began = next(iter(events), None)
    if not isinstance(began, Began):
        raise PlotError(
            f"{run_dir}: not a population (population.strategy pbt): it contains no {journal_file(run_dir).relative_to(run_dir)}"
        )
    members = [_member(run_dir / AGENTS / str(agent), agent) for agent in range(len(began.members))]
    normalised = any(np.isfinite(member.score).any() for member, _ in members)
    chosen = [
        member if normalised else MemberHistory(member.number, member.env_frames, returns, member.fitness, member.settings)
        for member, returns in members
    ]
    score_name = "human-normalised score, capped" if normalised else "mean return"
    return PopulationHistory(chosen, Lineages(events), score_name)


def along(members: Sequence[MemberHistory], segments: Sequence[Segment], values: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Follow a line of descent through ``values``, [P] for each member. Returns env frames behind the weights, [Q], and values, [Q]."""
    ages, found = [], []
    for segment in segments:
        frames = members[segment.member].env_frames
        own = (frames > segment.start) & (frames <= segment.end)
        ages.append(frames[own] - segment.start + segment.age)
        found.append(values[segment.member][own])
    return np.concatenate(ages), np.concatenate(found)


def _member(directory: Path, number: int) -> tuple[MemberHistory, FloatArray]:
    """Return a member with its human-normalised score, and its mean returns."""
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
