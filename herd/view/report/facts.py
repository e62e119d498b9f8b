"""Reads the facts about a run from its directory, formatted for a page. No drawing, no HTML."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from herd.components.suites import with_reward_shaping
from herd.config.loading.keys import keys_by_variant, section_variants
from herd.files import FileError
from herd.run.journals import mapping_in, number_in, read_points, read_report
from herd.run.paths import agent_directories, config_file, whole_run
from herd.run.settings import flat_values, read_config
from herd.view.snapshot import snapshot_of
from herd.view.status import read_status
from herd.view.terminal import clock, count, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from herd.view.snapshot import RunSnapshot

_NOT_OF_INTEREST = frozenset({"run_dir", "resume"})
"""Settings about where and how a run was started, which are not shown."""
_GAMES = 100
"""Number of games in a mean return."""


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """One row of the table of tasks."""

    agent: str
    """Number of the agent; empty where there is only one."""
    name: str
    env_frames: str
    games: str
    first_return: str
    """Mean return of the first 100 games, if there are at least 200."""
    last_return: str
    best_return: str
    human_normalised: str


@dataclass(frozen=True, slots=True)
class Changed:
    """A setting that differs from its default."""

    key: str
    value: str
    default: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """All contents of the page except pictures."""

    name: str
    state: str
    """As in `herd.run.processes`: running, finished, crashed, and so on."""
    learns_from: str
    """One line about rewards, observations and actions; empty until there is a report."""
    figures: Sequence[tuple[str, str]]
    """Numbers that are shown large, with their names."""
    warnings: Sequence[str]
    tasks: Sequence[TaskFacts]
    changed: Sequence[Changed]
    config: str
    """The text of config.yaml."""
    machine: Sequence[tuple[str, str]]
    agents: Sequence[Path]
    """Directories of the agents that have points, best first by the newest return."""


def read_facts(run_dir: Path) -> RunFacts:
    """Read a run.

    Raises:
        FileError: an agent has no learning curve yet, or it or config.yaml cannot be read.

    """
    text, config = read_config(config_file(run_dir))
    status = read_status(whole_run(run_dir))
    agents = agent_directories(run_dir)
    curves = [read_points(agent) for agent in agents]
    now = [snapshot_of(points[-1], points) for points in curves]
    problems = [problem for each in (status, *status.agents) if (problem := each.checkpoint_problem) is not None]
    reports = [_report(agent, problems) for agent in agents]
    labels = [agent.name if len(agents) > 1 else "" for agent in agents]
    messages = [status.message] if status.message else []
    return RunFacts(
        name=str(config.get("name", run_dir.name)),
        state=status.state,
        learns_from=next((str(report["learns_from"]) for report in reports if "learns_from" in report), ""),
        figures=_figures(now, reports),
        warnings=[*messages, *status.warnings, *problems],
        tasks=[row for label, own, report in zip(labels, now, reports, strict=True) for row in _task_rows(label, own, report)],
        changed=changed_settings(config),
        config=text,
        machine=_machine(next((report for report in reports if report), {})),
        agents=sorted(agents, key=lambda agent: -_standing(now[agents.index(agent)])),
    )


def changed_settings(config: Mapping[str, Any]) -> list[Changed]:
    """Return the settings of a config.yaml that differ from their defaults, in the order of the reference; unknown settings come last."""
    settings, changed = flat_values(config), []
    for key in keys_by_variant():
        default = list(key.default) if isinstance(key.default, tuple) else key.default
        shown = key.default_text
        if key.variants:
            variants = section_variants()[key.section]
            kind = f"{key.section}.{variants.discriminator}"
            if settings.get(kind, variants.default) not in key.variants:
                continue
            if key.dotted == kind:
                default = shown = variants.default  # each variant's own default is itself
        if key.dotted == "algorithm.reward_shaping":
            default = shown = _suites_reward_shaping(config) or shown
        if settings.get(key.dotted, default) != default and key.dotted not in _NOT_OF_INTEREST:
            changed.append(Changed(key.dotted, _text(settings[key.dotted]), shown))
    known = {key.dotted for key in keys_by_variant()}
    return changed + [Changed(name, _text(value), "") for name, value in settings.items() if name not in known]


def _suites_reward_shaping(config: Mapping[str, Any]) -> str | None:
    """Return the reward shaping of runs of this suite that do not set it; None if the suite is not installed here."""
    shaped = with_reward_shaping({"env": config.get("env", {})})
    return str(shaped["algorithm"]["reward_shaping"]) if isinstance(shaped, dict) and "algorithm" in shaped else None


def _figures(now: Sequence[RunSnapshot], reports: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    first = now[0]
    speeds = [number_in(report, "frames_per_second") or own.frames_per_second or 0.0 for report, own in zip(reports, now, strict=True)]
    figures = [
        ("environment frames", count(sum(own.env_frames for own in now))),
        ("running time", clock(max(own.elapsed_seconds for own in now))),
        ("frames per second", f"{sum(speeds):,.0f}"),
        ("learner updates", f"{sum(own.learner_updates or 0.0 for own in now):,.0f}"),
    ]
    if len(now) > 1:
        return [*figures, ("agents", str(len(now)))]
    if len(first.tasks) == 1 and first.tasks[0].episode_return is not None:
        figures.append((f"return, last {_GAMES} games", f"{first.tasks[0].episode_return:,.2f}"))
    if first.human_normalised is not None:
        figures.append(("human-normalised, at most 100%", f"{first.human_normalised:.0%}"))
    return [*figures, ("policy lag, updates", number(first.policy_lag, 1))]


def _task_rows(label: str, now: RunSnapshot, report: Mapping[str, Any]) -> list[TaskFacts]:
    rows = []
    for task in now.tasks:
        progress = mapping_in(mapping_in(mapping_in(report, "tasks"), task.name), "progress")
        rows.append(
            TaskFacts(
                agent=label,
                name=task.name,
                env_frames=count(task.env_frames or 0.0),
                games=f"{task.episodes:,}",
                first_return=number(number_in(progress, "mean_first") if progress else task.first_return, 2),
                last_return=number(task.episode_return, 2),
                best_return=number(task.best_return, 2),
                human_normalised="" if task.human_normalised is None else f"{task.human_normalised:.0%}",
            )
        )
    return rows


def _machine(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the learner's machine from its report."""
    machine = mapping_in(report, "machine")
    shown = []
    for name, value in machine.items():
        if value is None or name in {"bfloat16_is_faster", "load_average_1_minute"}:
            continue
        text = f"{value / 2**30:,.1f} GiB" if name == "memory_bytes" and isinstance(value, int) else str(value)
        shown.append((name.removesuffix("_bytes").replace("_", " "), text))
    return shown


def _standing(now: RunSnapshot) -> float:
    """Return the number by which agents are compared; tasks of different scales cannot be, so it is their first task's return."""
    returned = next((task.episode_return for task in now.tasks), None)
    return now.human_normalised if now.human_normalised is not None else returned if returned is not None else float("-inf")


def _report(agent: Path, problems: list[str]) -> Mapping[str, Any]:
    try:
        return read_report(agent)
    except FileError as error:
        problems.append(str(error))
        return {}


def _text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return json.dumps(value) if isinstance(value, dict) else str(value)
