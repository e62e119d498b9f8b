"""Reads the learning curve of a run: ``metrics.jsonl`` as arrays, and the identity of the run."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from herd.config.sweep import parse_sweep, swept_values
from herd.run.journals import mapping_in, number_in, read_points
from herd.run.paths import AGENTS, agent_number, config_file
from herd.run.settings import read_config
from herd.view.plots.figure import PlotError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FloatArray = NDArray[np.float64]
XAxis = Literal["env_frames", "wall_seconds"]

# Two runs are repeats of one experiment if these settings are equal. Seeds, machines and processes do not matter.
_EXPERIMENT_SECTIONS = (
    "population", "env", "network", "action", "algorithm", "loss", "value_scaling", "auxiliary", "optimizer", "replay", "bandit",
)  # fmt: skip
_EXPERIMENT_LEARNER = ("batch_size", "sample_reuse")
_MACHINE_SETTINGS = ("interval_seconds",)
"""Ends of the names of settings that say how often a service writes."""
# "pong-seed3", "pong_s3": one experiment named by seed, because a run's name is also its directory.
_SEED_SUFFIX = re.compile(r"[-_.](?:s|seed)[-_]?\d+$")


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The points of one run in time order; P points."""

    directory: Path
    experiment: str
    """The run's name without a seed suffix."""
    suite: str
    sweep: str
    """The swept values of this agent: ``learning_rate 0.0003, entropy_cost 0.01``; empty without a sweep."""
    settings: dict[str, str]
    """Settings on which learning depends, by dotted key; equal for two runs that are repeats of one experiment."""
    env_frames: FloatArray
    """Env frames over all tasks, [P]."""
    wall_seconds: FloatArray
    """Running time in seconds, including restarts, [P]."""
    learner_updates: FloatArray
    """[P], NaN where a point has none."""
    episode_returns: dict[str, FloatArray]
    """Mean raw return of the last 100 games, [P] by task name; NaN before the first game ended."""
    task_scores: dict[str, FloatArray]
    """Human-normalised return, [P] by name of each task with a human score; NaN before the first game ended."""
    numbers: dict[str, FloatArray]
    """All numbers at the top level of points, and those of ``health`` as ``health.update_kl``, [P] each; NaN where a point has none."""

    def x(self, axis: XAxis) -> FloatArray:
        """Return the values of an axis, [P], never decreasing."""
        return self.env_frames if axis == "env_frames" else self.wall_seconds


def read_run(directory: Path) -> RunHistory:
    """Read one run directory; raises ``FileError``."""
    if not directory.is_dir():
        raise PlotError(f"no such run directory: {directory}")
    config = read_config(file)[1] if (file := config_file(directory)).exists() else {}  # raw: runs with older settings can be drawn
    points = read_points(directory)
    name = config.get("name")
    env = config.get("env")
    env = env if isinstance(env, dict) else {}
    tasks = _task_names(points, env)
    swept = _swept(config, directory)
    return RunHistory(
        directory=directory,
        experiment=_experiment(name if isinstance(name, str) else directory.name, directory, config),
        suite=str(env.get("suite", "")),
        settings=_experiment_settings(config) | {key: _text(value) for key, value in swept.items()},
        sweep=_sweep_label(swept),
        env_frames=column(points, "env_frames"),
        wall_seconds=column(points, "wall_seconds"),
        learner_updates=column(points, "learner_updates"),
        episode_returns={task: _episode_returns(points, task, only_task=len(tasks) == 1) for task in tasks},
        task_scores=_task_scores(points, tasks),
        numbers=_numbers(points),
    )


def _experiment_settings(config: Mapping[str, Any]) -> dict[str, str]:
    sections = {name: config.get(name) for name in _EXPERIMENT_SECTIONS}
    learner = config.get("learner")
    sections["learner"] = {key: learner.get(key) for key in _EXPERIMENT_LEARNER} if isinstance(learner, dict) else None
    settings = {
        f"{name}.{key}": _text(value)
        for name, section in sections.items()
        if isinstance(section, dict)
        for key, value in section.items()
        if not str(key).endswith(_MACHINE_SETTINGS)
    }
    if settings.get("replay.kind") == "shared":
        # An agent learns from the unrolls of all others.
        settings["agents"] = _text(config.get("agents", 1))
    return settings


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _experiment(name: str, directory: Path, config: Mapping[str, Any]) -> str:
    """Return the name of the experiment.

    The agents of one run are not repeats of each other. In a sweep their values distinguish them; in a population, where values change,
    their numbers do.
    """
    path = directory.resolve()
    keeps_values = bool(config.get("sweep")) and not _is_population(config)
    agent = f" agent {path.name}" if path.parent.name == AGENTS and not keeps_values else ""
    return _SEED_SUFFIX.sub("", name) + agent


def _swept(config: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Return this agent's values of the sweep, by dotted key; empty if values change or no sweep can be read."""
    sweep, seed = parse_sweep(config.get("sweep")), config.get("seed")
    if sweep is None or not isinstance(seed, int) or _is_population(config):
        return {}
    return swept_values(sweep, agent_number(directory), seed)


def _is_population(config: Mapping[str, Any]) -> bool:
    population = config.get("population")
    return isinstance(population, dict) and population.get("strategy") == "pbt"


def _sweep_label(swept: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key.rpartition('.')[2]} {value:g}" if isinstance(value, float) else f"{key.rpartition('.')[2]} {value}"
        for key, value in swept.items()
    )


def _task_names(points: list[dict[str, Any]], env: dict[str, Any]) -> list[str]:
    seen: dict[str, None] = {}
    for point in points:
        seen.update(dict.fromkeys(point.get("tasks") or {}))
    if seen:
        return list(seen)
    configured = env.get("tasks")
    return [str(task) for task in configured] if isinstance(configured, list) and configured else ["all tasks"]


def _episode_returns(points: list[dict[str, Any]], task: str, *, only_task: bool) -> FloatArray:
    return column(points if only_task else _of_task(points, task), "episode_return_mean_100")


def _task_scores(points: list[dict[str, Any]], tasks: list[str]) -> dict[str, FloatArray]:
    records = {task: _of_task(points, task) for task in tasks}
    return {task: column(own, "human_normalised") for task, own in records.items() if any("human_normalised" in each for each in own)}


def _of_task(points: list[dict[str, Any]], task: str) -> list[Mapping[str, Any]]:
    return [mapping_in(mapping_in(point, "tasks"), task) for point in points]


def _numbers(points: list[dict[str, Any]]) -> dict[str, FloatArray]:
    """Return every number of a point under its name, including those of unknown losses and other versions."""
    rows = [point | {f"health.{key}": value for key, value in mapping_in(point, "health").items()} for point in points]
    names = dict.fromkeys(name for row in rows for name in row if number_in(row, name) is not None)
    return {name: column(rows, name) for name in names}


def column(records: Sequence[Mapping[str, Any]], key: str) -> FloatArray:
    """Return one number of every record, [P]; NaN where a record has none."""
    return np.array([math.nan if (value := number_in(record, key)) is None else value for record in records], np.float64)
