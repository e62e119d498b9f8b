from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from herd_learner.update import Update

from herd.bench.synthetic import synthetic_unrolls
from herd.config.settings import RunSettings
from herd.envs.make import environment_spec
from herd.wire.run_layout import run_layout

BATCH_SIZE = 5
CATCH = {"suite": "catch", "frame_stack": 4, "action_repeat": 4, "tasks": ("catch",), "frame_height": 6, "frame_width": 5}
RECURRENT = {"torso": "mlp", "core": "lstm", "core_size": 8, "last_action_and_reward": True}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _update(micro_batch_size: int = 2, **changes: Any) -> Update:
    settings = RunSettings.model_validate(
        {
            "env": CATCH,
            "network": RECURRENT,
            "learner": {"batch_size": BATCH_SIZE, "micro_batch_size": micro_batch_size},
            "algorithm": {"unroll_length": 4},
            "actor": {"environments": 2},
            **changes,
        }
    )
    return Update(settings, environment_spec(settings.env), torch.device("cpu"), torch.float32)


def _batch(seed: int = 0) -> dict[str, torch.Tensor]:
    """Unrolls with games that end, and rows that only start one."""
    settings = RunSettings.model_validate(
        {"env": CATCH, "network": RECURRENT, "algorithm": {"unroll_length": 4}, "actor": {"environments": 2}}
    )
    arrays = synthetic_unrolls(run_layout(settings, environment_spec(settings.env)), BATCH_SIZE, seed=seed)
    batch = {name: torch.from_numpy(array).clone() for name, array in arrays.items()}
    generator = torch.Generator().manual_seed(seed)
    batch["terminated"] = torch.rand(batch["terminated"].shape, generator=generator) < 0.2
    batch["row_valid"] = torch.rand(batch["row_valid"].shape, generator=generator) < 0.8
    batch["row_valid"][0] = True
    batch["row_valid"][BATCH_SIZE - 1] = False  # one part of the batch may hold no valid row at all
    return batch


@pytest.mark.parametrize(("reduction", "learning_rate"), [("sum", 1e-2), ("mean", 0.1)])
def test_micro_batches_do_not_change_the_update(reduction: str, learning_rate: float) -> None:
    algorithm, loss = {"unroll_length": 4}, {"reduction": reduction}
    whole = _update(BATCH_SIZE, algorithm=algorithm, loss=loss)
    parts = {size: _update(size, algorithm=algorithm, loss=loss) for size in (1, 3)}
    before = [parameter.detach().clone() for parameter in whole.agent.parameters()]
    for step in range(3):
        expected = whole(_batch(step), learning_rate)
        for update in parts.values():
            statistics = update(_batch(step), learning_rate)
            assert statistics.losses == pytest.approx(expected.losses, rel=1e-4, abs=1e-5)
            assert statistics.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-4)
    moved = 0.0
    for name, parameter in whole.agent.named_parameters():
        for update in parts.values():
            torch.testing.assert_close(dict(update.agent.named_parameters())[name], parameter, rtol=1e-4, atol=1e-6)
    for old, parameter in zip(before, whole.agent.parameters(), strict=True):
        moved = max(moved, float((old - parameter.detach()).abs().max()))
    assert moved > 1e-3  # far above the tolerance


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("limit", [None, 40.0])
def test_a_gradient_that_is_not_finite_skips_the_step(poison: float, limit: float | None) -> None:
    update = _update(optimizer={"max_gradient_norm": limit, "momentum": 0.5})
    assert update(_batch(), 1e-2).is_finite
    parameters = {name: parameter.clone() for name, parameter in update.agent.state_dict().items()}
    state = {name: tensor.clone() for name, tensor in update.optimizer_tensors().items()}
    poisoned = _batch(1)
    poisoned["initial_core_state"][0, 0, 0] = poison
    poisoned["core_reset"][0, 0] = False
    if poison == float("inf"):
        poisoned["rewards"][...] = 3e38
        update._algorithm = update._algorithm.model_copy(update={"reward_shaping": "none"})
    assert not update(poisoned, 1e-2).is_finite
    assert all(torch.equal(parameters[name], parameter) for name, parameter in update.agent.state_dict().items())
    assert all(torch.equal(state[name], tensor) for name, tensor in update.optimizer_tensors().items())
    assert update(_batch(2), 1e-2).is_finite
    assert not all(torch.equal(parameters[name], parameter) for name, parameter in update.agent.state_dict().items())


def test_a_batch_without_one_valid_row_changes_nothing() -> None:
    update = _update(optimizer={"momentum": 0.0})
    before = {name: parameter.clone() for name, parameter in update.agent.state_dict().items()}
    batch = _batch()
    batch["row_valid"][...] = False
    statistics = update(batch, 1e-2)
    assert (statistics.is_finite, statistics.losses.total, statistics.gradient_norm) == (True, 0.0, 0.0)
    assert all(torch.equal(before[name], parameter) for name, parameter in update.agent.state_dict().items())


def test_the_gradient_is_clipped_by_its_global_norm() -> None:
    batch = _batch()
    free, clipped = _update(optimizer={"max_gradient_norm": None}), _update(optimizer={"max_gradient_norm": 0.5})
    norm = free(batch, 1e-2).gradient_norm
    assert norm > 1.0
    assert clipped(batch, 1e-2).gradient_norm == pytest.approx(norm)  # as it was before
    for one, other in zip(free.agent.parameters(), clipped.agent.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(other.grad, one.grad * (0.5 / norm), rtol=1e-4, atol=1e-7)


def test_the_learning_rate_is_that_of_the_call() -> None:
    update = _update()
    before = {name: parameter.clone() for name, parameter in update.agent.state_dict().items()}
    update(_batch(), 0.0)
    assert all(torch.equal(before[name], parameter) for name, parameter in update.agent.state_dict().items())


def test_equal_settings_start_from_equal_parameters_and_another_seed_does_not() -> None:
    one, same, other = _update(), _update(), _update(seed=2)
    assert all(torch.equal(a, b) for a, b in zip(one.agent.parameters(), same.agent.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one.agent.parameters(), other.agent.parameters(), strict=True))
