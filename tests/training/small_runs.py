"""Trainers and tiny batches: Catch, a few rows, games that end, and rows that only start one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.machine.synthetic import synthetic_unrolls
from herd.components.optimizers import Rates
from herd.components.suites import environment_spec
from herd.config.run import RunSettings
from herd.config.run_contract import run_layout
from herd.training.batch import BatchBuffer
from herd.training.trainer import Trainer

BATCH_SIZE = 5
RUN: dict[str, Any] = {
    "env": {"suite": "catch", "frame_stack": 4, "action_repeat": 4, "tasks": ["catch"], "frame_height": 6, "frame_width": 5},
    "network": {"torso": "mlp", "core": {"kind": "lstm", "size": 8}, "last_action_and_reward": True},
    "algorithm": {"unroll_length": 4},
    "learner": {"batch_size": BATCH_SIZE, "micro_batch_size": 2},
    "actor": {"environments": 2},
}
STEP = Rates(1e-2)


def run_of(**changes: Any) -> RunSettings:
    """The settings `RUN`, with whole sections replaced."""
    return RunSettings.model_validate({**RUN, **changes})


def trainer_of(settings: RunSettings, precision: torch.dtype = torch.float32) -> Trainer:
    """A single trainer on the CPU."""
    return Trainer(settings, environment_spec(settings.env), torch.device("cpu"), precision)


def unrolls_of(settings: RunSettings, seed: int = 0) -> dict[str, NDArray[Any]]:
    """A batch in the wire format: rewards differ and games end; the first unroll is fully valid, the last has no valid row."""
    layout = run_layout(settings, environment_spec(settings.env))
    arrays = synthetic_unrolls(layout, settings.learner.batch_size, seed=seed)
    random = np.random.default_rng(seed)
    arrays["rewards"][...] = random.standard_normal(arrays["rewards"].shape)
    arrays["terminated"][...] = random.random(arrays["terminated"].shape) < 0.2
    arrays["row_valid"][...] = random.random(arrays["row_valid"].shape) < 0.8
    arrays["row_valid"][0] = True
    arrays["row_valid"][-1] = False
    arrays["task_id"][...] = random.integers(len(settings.env.tasks), size=len(arrays["task_id"]))
    return arrays


def buffer_of(settings: RunSettings, arrays: dict[str, NDArray[Any]]) -> BatchBuffer:
    """A buffer with these unrolls."""
    return BatchBuffer.from_unrolls(run_layout(settings, environment_spec(settings.env)), arrays)


def batch_of(settings: RunSettings, seed: int = 0) -> BatchBuffer:
    """A buffer of `unrolls_of`."""
    return buffer_of(settings, unrolls_of(settings, seed))


def values_of(losses: Any) -> dict[str, float]:
    """Values of a loss, by name."""
    return {name: measured.value for name, measured in losses.items()}
