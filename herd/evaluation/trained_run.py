"""Opens a run directory for playing: its settings, a checkpoint, and the agent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from herd.agent import Agent, build_agent
from herd.components.suites import environment_spec, suite_of
from herd.components.value_scaling import VALUE_SCALINGS
from herd.components.value_scaling.api import VALUE_STATISTICS
from herd.config.loading import SettingsError, load_settings
from herd.config.loading.sources import take_section
from herd.evaluation.protocols import EvaluationError
from herd.run.checkpoints import CheckpointError, newest_checkpoint
from herd.run.journals import BANDIT_STATES, best_inverse_temperatures
from herd.run.paths import CHECKPOINTS, agent_number, config_file, whole_run
from herd.run.tensors import load_checkpoint, load_into

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from herd.acting.temperatures import Bounds
    from herd.components.suites import SuiteSettings
    from herd.components.value_scaling.api import Statistics
    from herd.config.run import RunSettings
    from herd.contract.spaces import EnvSpec


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A policy and its origin."""

    settings: RunSettings
    """Settings of training, with the overrides applied."""
    differs_from_training: tuple[str, ...]
    """Settings of ``env`` that differ from training."""
    spec: EnvSpec
    agent: Agent
    checkpoint: Path
    learner_updates: int
    env_frames: int | None
    """Env frames of training over all tasks; None if the checkpoint does not say."""


def load_trained_run(run_dir: Path, checkpoint: Path | None = None, overrides: Sequence[str] = ()) -> TrainedRun:
    """Open ``run_dir`` with ``checkpoint``, or with its newest intact one.

    ``overrides`` are settings of ``env`` as on a command line. Other tasks may be played if the policy fits them.

    Raises:
        EvaluationError: there is no such run or checkpoint, the checkpoint belongs to another network, or an override is invalid or does
            not fit the policy.

    """
    trained, trained_spec = settings_of(run_dir)
    config = config_file(run_dir)
    try:
        agent = build_agent(trained, trained_spec)
    except ValueError as error:
        raise EvaluationError(f"{config}: {error}") from error
    settings, spec = _overridden(config, overrides, trained.env, trained_spec)
    try:
        directory = checkpoint if checkpoint is not None else newest_checkpoint(run_dir / CHECKPOINTS)
        if directory is None:
            raise EvaluationError(f"{run_dir} contains no checkpoint yet")
        loaded = load_checkpoint(directory)
    except CheckpointError as error:
        raise EvaluationError(str(error)) from error
    if "model" not in loaded.tensors:
        raise EvaluationError(f"{directory} is not a learner's checkpoint: it contains no model")
    try:
        load_into(agent, loaded.tensors["model"])
    except CheckpointError as error:
        raise EvaluationError(f"{directory} does not fit {config}: {error}") from error
    try:
        _un_normalise(agent, trained, len(trained_spec.task_names), loaded.tensors.get(VALUE_STATISTICS, {}))
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        raise EvaluationError(f"{directory} does not fit {config}: its {VALUE_STATISTICS} belongs to other tasks") from error
    statistics = loaded.state.get("statistics")
    env_frames = statistics.get("env_frames") if isinstance(statistics, dict) else None
    played = settings.env.game_settings()
    differing = tuple(name for name, value in trained.env.game_settings().items() if played.get(name) != value)
    return TrainedRun(
        settings, differing, spec, agent, loaded.path, loaded.learner_updates, env_frames if isinstance(env_frames, int) else None
    )


def settings_of(run_dir: Path) -> tuple[RunSettings, EnvSpec]:
    """Read the settings of a run's training; EvaluationError if ``run_dir`` is not a run or cannot be read."""
    if not run_dir.is_dir():
        raise EvaluationError(f"no such run directory: {run_dir}")
    config = config_file(run_dir)
    if not config.is_file():
        raise EvaluationError(f"{run_dir} is not a run: it contains no config.yaml")
    try:
        settings = load_settings([config], [], {})
        return settings, environment_spec(settings.env)
    except (SettingsError, ValueError) as error:
        raise EvaluationError(f"{config}: {error}") from error


def _overridden(config: Path, overrides: Sequence[str], trained_env: SuiteSettings, trained: EnvSpec) -> tuple[RunSettings, EnvSpec]:
    try:
        _, others = take_section(overrides, "env")
        if others:
            raise EvaluationError(f"{others[0]}: only settings of env may differ from training")
        settings = load_settings([config], overrides, {})
        spec = environment_spec(settings.env)
    except (SettingsError, ValueError) as error:
        raise EvaluationError(str(error)) from error
    if replace(spec, task_names=trained.task_names, action_repeat=trained.action_repeat) != trained:
        raise EvaluationError(f"{' '.join(overrides)}: the policy was trained with other observations or actions")
    if settings.env.tasks != trained_env.tasks:
        before, now = (suite_of(env).action_names(env) for env in (trained_env, settings.env))
        if before is not None and now is not None and list(before) != list(now):
            raise EvaluationError(
                f"{' '.join(overrides)}: the policy was trained with other actions: {', '.join(before)} in {', '.join(trained_env.tasks)}, "
                f"but {', '.join(now)} in {', '.join(settings.env.tasks)}"
            )
    return settings, spec


def _un_normalise(agent: Agent, trained: RunSettings, num_tasks: int, statistics: Statistics) -> None:
    """Rewrite the value heads so that they predict unnormalised returns."""
    if statistics:
        scaling = VALUE_SCALINGS.make(trained.value_scaling, num_tasks)
        scaling.rescale(agent.value_head, statistics, scaling.initial("cpu"))


def best_temperatures(run_dir: Path, run: TrainedRun) -> tuple[Bounds, ...] | None:
    """Return the ranges of 1/tau by task, from the newest readable state of the bandit; None if games are played with tau = 1.

    A task without any return so far is played with tau = 1.

    Raises:
        EvaluationError: the run uses temperatures, but no state can be read.

    """
    if not run.settings.loss.draws_temperatures:
        return None
    agent = agent_number(run_dir)
    if not (best := best_inverse_temperatures(whole_run(run_dir))):
        raise EvaluationError(f"{run_dir} contains no readable {BANDIT_STATES[0]}, which holds the best temperatures")
    return tuple(best.get((agent, task)) or (1.0, 1.0) for task in run.spec.task_names)
