"""``learner.compile`` on a CPU: another way to compute the same step."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from herd_learner.update import Update

from herd.bench.synthetic import synthetic_unrolls
from herd.config.settings import RunSettings
from herd.envs.make import environment_spec
from herd.wire.run_layout import run_layout

BATCH_SIZE = 4
RUN: dict[str, Any] = {
    "env": {"suite": "catch", "frame_stack": 4, "action_repeat": 4, "tasks": ["catch"], "frame_height": 6, "frame_width": 5},
    "network": {"torso": "mlp", "core": "none"},
    "algorithm": {"unroll_length": 2},
    "actor": {"environments": 2},
}


def step(mode: str) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Weights after one update, its losses and gradient norm."""
    settings = RunSettings.model_validate({**RUN, "learner": {"batch_size": BATCH_SIZE, "compile": mode}})
    spec = environment_spec(settings.env)
    update = Update(settings, spec, torch.device("cpu"), torch.float32)
    unrolls = synthetic_unrolls(run_layout(settings, spec), BATCH_SIZE, seed=1)
    batch = {name: torch.from_numpy(array).clone() for name, array in unrolls.items()}
    batch["rewards"] = torch.randn(batch["rewards"].shape, generator=torch.Generator().manual_seed(0))
    statistics = update(batch, 1e-2)
    return {name: tensor.clone() for name, tensor in update.weights().items()}, [*statistics.losses, statistics.gradient_norm]


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs a C++ compiler")
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
def test_a_compiled_step_is_the_same_step() -> None:
    torch._dynamo.reset()
    expected, told = step("off")
    torch._dynamo.utils.counters.clear()
    compiled, told_compiled = step("default")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert told_compiled == pytest.approx(told, rel=1e-4, abs=1e-6)
    for name, tensor in expected.items():
        torch.testing.assert_close(compiled[name], tensor, rtol=1e-4, atol=1e-6)
