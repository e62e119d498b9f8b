"""An actor's two costs, measured separately: stepping its environments, and computing actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.machine.measurement import Measurement, measure
from herd.components.suites import environment_spec, make_environments

if TYPE_CHECKING:
    from herd.config.run import RunSettings

# Actions are drawn in advance, so that drawing them is not measured. Their number is prime, so that they differ in each unroll.
NUM_DRAWN_ACTIONS = 997


def measure_environment(settings: RunSettings, *, seconds: float, warmup_seconds: float = 1.0) -> Measurement:
    """Measure steps of ``actor.environments`` environments on ``actor.environment_threads`` threads with uniformly random actions."""
    num_environments = settings.actor.environments
    environments = make_environments(
        settings.env,
        num_environments=num_environments,
        first_slot=0,
        seed=settings.seed,
        num_threads=settings.actor.environment_threads,
    )
    random = np.random.default_rng(settings.seed)
    actions = random.integers(0, environments.spec.actions.num_actions, (NUM_DRAWN_ACTIONS, num_environments), dtype=np.int32)
    num_steps = 0

    def step() -> int:
        nonlocal num_steps
        environments.step(actions[num_steps % NUM_DRAWN_ACTIONS])
        num_steps += 1
        return num_environments

    try:
        environments.reset()
        return measure(step, seconds=seconds, warmup_seconds=warmup_seconds)
    finally:
        environments.close()


def measure_inference(settings: RunSettings, *, seconds: float, warmup_seconds: float = 1.0) -> Measurement:
    """Measure actions for ``actor.environments`` observations at once on ``actor.inference_threads`` threads."""
    import torch  # noqa: PLC0415  bad settings are answered before loads torch

    from herd.acting.policy import LocalPolicy, inference_precision  # noqa: PLC0415
    from herd.acting.row_state import RowState  # noqa: PLC0415
    from herd.acting.temperatures import Temperatures  # noqa: PLC0415
    from herd.agent import build_agent  # noqa: PLC0415
    from herd.components.suites.api import Observation  # noqa: PLC0415

    torch.set_num_threads(settings.actor.inference_threads)
    spec = environment_spec(settings.env)
    num_environments = settings.actor.environments
    agent = build_agent(settings, spec)
    policy = LocalPolicy(agent, seed=settings.seed, precision=inference_precision(settings))
    state = RowState(spec, settings.network, Temperatures(), num_environments=num_environments)
    random = np.random.default_rng(settings.seed)
    height, width, _ = spec.frame_shape
    length = spec.instruction_length
    observation = Observation(
        stack=random.integers(0, 256, (num_environments, spec.observation_channels, height, width), dtype=np.uint8),
        game_reset=np.zeros(num_environments, dtype=np.bool_),
        instructions=random.integers(1, 1000, (num_environments, length), dtype=np.int64) if length else None,
        vector=random.standard_normal((num_environments, spec.vector_size), np.float32) if spec.vector_size else None,
    )

    def step() -> int:
        policy.collect(policy.submit(state.rows(observation)))
        return num_environments

    return measure(step, seconds=seconds, warmup_seconds=warmup_seconds)
