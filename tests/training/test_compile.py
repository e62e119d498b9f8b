"""``learner.compile`` on a CPU gives the same step as without."""

from __future__ import annotations

import shutil

import pytest
import torch

from tests.training.small_runs import RUN, STEP, batch_of, run_of, trainer_of, values_of

CHANGES = {
    "env": {**RUN["env"], "frame_height": 8, "frame_width": 8},
    "network": {"torso": "mlp", "core": "none"},
    "algorithm": {"unroll_length": 2},
    "value_scaling": {"kind": "popart"},
    "auxiliary": {"kind": "pixel_control", "cell_size": 1},
}


def step(mode: str) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Weights after one update, its losses and gradient norm."""
    settings = run_of(**CHANGES, learner={"batch_size": 4, "compile": mode})
    trainer = trainer_of(settings)
    statistics = trainer(batch_of(settings), STEP)
    return {name: tensor.clone() for name, tensor in trainer.weights().items()}, {
        **values_of(statistics.losses),
        "gradient_norm": statistics.gradient_norm,
    }


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch warns while it compiles
def test_a_compiled_step_gives_the_same_result() -> None:
    torch._dynamo.reset()
    expected, told = step("off")
    torch._dynamo.utils.counters.clear()
    compiled, told_compiled = step("default")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert told_compiled == pytest.approx(told, rel=1e-4, abs=1e-6)
    for name, tensor in expected.items():
        torch.testing.assert_close(compiled[name], tensor, rtol=1e-4, atol=1e-6)
