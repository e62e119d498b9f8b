"""What the optional parts of a run did: bandit, population, replay and evaluations, for its summary and its page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from herd.files import FileError, mapping, read_record
from herd.protocols.population.journal import Decided, Done, Lineages, journal_file, read_journal
from herd.run.journals import best_inverse_temperatures, mapping_in, newest_point, number_in, read_evaluations
from herd.run.paths import REPORT, agent_directories

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MOST_ROWS = 8
"""Largest number of tasks that are listed one by one."""


class Part(NamedTuple):
    """One part."""

    title: str
    rows: tuple[tuple[str, str], ...]
    plot: str = ""
    """Option of ``herd plot`` that draws it; empty if nothing does."""


def parts_of(run_dir: Path) -> list[Part]:
    """Return the optional parts that a run had, as far as their files can be read."""
    found = []
    for read in (_bandit, _population, _replay, _evaluations):
        try:
            part = read(run_dir)
        except FileError as error:
            part = Part("unreadable", (("problem", str(error)),))
        if part is not None:
            found.append(part)
    return found


def _bandit(run_dir: Path) -> Part | None:
    best = {key: bounds for key, bounds in best_inverse_temperatures(run_dir).items() if bounds is not None}
    if not best:
        return None
    several = len({agent for agent, _ in best}) > 1
    rows = [
        (f"agent {agent} {task}" if several else task, f"best 1/tau {low:.3g} to {high:.3g}")
        for (agent, task), (low, high) in sorted(best.items())
    ]
    return Part("temperatures", _shortened(rows), "--bandit")


def _population(run_dir: Path) -> Part | None:
    events = list(read_journal(journal_file(run_dir)))
    if not events:
        return None
    ordered = {event.number: event for event in events if isinstance(event, Decided)}
    done = [order for event in events if isinstance(event, Done) and (order := ordered.get(event.number)) is not None]
    members = {agent.name: mapping_in(newest_point(agent), "population") for agent in agent_directories(run_dir)}
    fitness = {name: value for name, member in members.items() if (value := number_in(member, "fitness")) is not None}
    rows = [
        ("copies", f"{len(Lineages(events).copies):,}"),
        ("changes of settings", f"{sum(order.before != order.settings for order in done):,}"),
    ]
    if fitness:
        best = max(fitness, key=fitness.__getitem__)
        settings = ", ".join(f"{key} {_text(value)}" for key, value in mapping_in(members[best], "settings").items())
        rows.append(("best member", f"{best}, fitness {fitness[best]:,.2f}{f'; {settings}' if settings else ''}"))
    return Part("population", tuple(rows), "--population")


def _replay(run_dir: Path) -> Part | None:
    agents = agent_directories(run_dir)
    rows = []
    for agent in agents:
        try:
            replay = mapping_in(read_record(agent / REPORT, "a report", mapping), "replay")
        except FileNotFoundError:
            continue
        which = f"agent {agent.name} " if len(agents) > 1 else ""
        rows += [(f"{which}{name.replace('_', ' ')}", _text(value)) for name, value in replay.items() if not isinstance(value, dict | list)]
    return Part("replay", _shortened(rows)) if rows else None


def _evaluations(run_dir: Path) -> Part | None:
    rows = []
    agents = agent_directories(run_dir)
    for agent in agents:
        for point in read_evaluations(agent)[-1:]:
            which = f"agent {agent.name} " if len(agents) > 1 else ""
            for task, mean in point.means.items():
                error = point.standard_errors.get(task)
                spread = "" if error is None else f" +- {error:,.2f}"
                rows.append((f"{which}{task}", f"{mean:,.2f}{spread} (after {point.learner_updates:,} updates)"))
    return Part("evaluation", _shortened(rows)) if rows else None


def _shortened(rows: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    more = [("", f"and {len(rows) - _MOST_ROWS} more")] if len(rows) > _MOST_ROWS else []
    return (*rows[:_MOST_ROWS], *more)


def _text(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
