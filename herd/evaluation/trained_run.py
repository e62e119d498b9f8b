"""A run directory opened for playing: its settings, its newest checkpoint, and the agent they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.checkpoints.store import CheckpointError, load_checkpoint, newest_checkpoint
from herd.checkpoints.weights import load_into
from herd.config.loading import SettingsError, load_settings
from herd.envs.make import environment_spec
from herd.networks.agent import Agent

if TYPE_CHECKING:
    from pathlib import Path

    from herd.config.contract import EnvSpec
    from herd.config.settings import RunSettings


class EvaluationError(Exception):
    """One line that says why a run cannot be played."""


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A policy and where it comes from."""

    settings: RunSettings
    spec: EnvSpec
    agent: Agent
    checkpoint: Path
    learner_updates: int
    env_frames: int | None
    """Of training, over all tasks; None where the checkpoint does not say."""


def load_trained_run(run_dir: Path, checkpoint: Path | None = None) -> TrainedRun:
    """Open ``run_dir`` with ``checkpoint``, or with its newest whole one.

    Raises:
        EvaluationError: no such run, no checkpoint, or one of another network.

    """
    if not run_dir.is_dir():
        raise EvaluationError(f"no such run directory: {run_dir}")
    config = run_dir / "config.yaml"
    if not config.is_file():
        raise EvaluationError(f"{run_dir} is not a run: it holds no config.yaml")
    try:
        settings = load_settings([config], [], {})
        spec = environment_spec(settings.env)
        agent = Agent(spec=spec, network=settings.network, head=settings.loss.head)
    except (SettingsError, ValueError) as error:
        raise EvaluationError(f"{config}: {error}") from error
    try:
        directory = checkpoint if checkpoint is not None else newest_checkpoint(run_dir / "checkpoints")
        if directory is None:
            raise EvaluationError(f"{run_dir} holds no checkpoint yet")
        loaded = load_checkpoint(directory)
    except CheckpointError as error:
        raise EvaluationError(str(error)) from error
    if "model" not in loaded.tensors:
        raise EvaluationError(f"{directory} is not a learner's checkpoint: it holds no model")
    try:
        load_into(agent, loaded.tensors["model"])
    except CheckpointError as error:
        raise EvaluationError(f"{directory} does not fit {config}: {error}") from error
    env_frames = loaded.state.get("statistics", {}).get("env_frames")
    return TrainedRun(settings, spec, agent, loaded.path, loaded.learner_updates, env_frames)
