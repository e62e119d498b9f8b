"""AdamW in the learner: its schedules, and a resume that changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from herd_learner.optimizers import Rates, rates_at
from herd_learner.update import Update

from herd.bench.synthetic import synthetic_unrolls
from herd.checkpoints.store import CheckpointError
from herd.config.optimizers import AdamWSettings
from herd.config.settings import RunSettings
from herd.envs.make import environment_spec
from herd.wire.run_layout import run_layout

ADAMW = {"kind": "adamw", "learning_rate": 1e-2, "warmup_updates": 4, "schedule_updates": 20, "weight_decay": 0.1, "epsilon": 1e-6}


def _settings(**changes: Any) -> RunSettings:
    return RunSettings.model_validate(
        {
            "env": {"suite": "catch", "frame_stack": 4, "action_repeat": 4, "tasks": ("catch",), "frame_height": 6, "frame_width": 5},
            "network": {"torso": "mlp"},
            "algorithm": {"unroll_length": 4},
            "loss": {"kind": "dice"},
            "actor": {"environments": 2},
            "learner": {"batch_size": 3},
            "optimizer": ADAMW,
            **changes,
        }
    )


def _update(**changes: Any) -> Update:
    settings = _settings(**changes)
    return Update(settings, environment_spec(settings.env), torch.device("cpu"), torch.float32)


def _batch(seed: int) -> dict[str, torch.Tensor]:
    settings = _settings()
    arrays = synthetic_unrolls(run_layout(settings, environment_spec(settings.env)), 3, seed=seed)
    return {name: torch.from_numpy(array).clone() for name, array in arrays.items()}


def test_the_rates_warm_up_and_fall_to_0() -> None:
    settings = AdamWSettings.model_validate(ADAMW)
    rates = [rates_at(settings, env_frames=10**9, learner_updates=update) for update in range(22)]
    assert [rate.learning_rate for rate in rates[:4]] == pytest.approx([2.5e-3, 5e-3, 7.5e-3, 1e-2])
    assert max(rate.learning_rate for rate in rates) == pytest.approx(1e-2)
    assert rates[12] == pytest.approx(Rates(5e-3, 0.04))
    assert (rates[0].weight_decay, rates[20], rates[21]) == (0.1, Rates(0.0, 0.0), Rates(0.0, 0.0))
    constant = settings.model_copy(update={"schedule": "constant"})
    assert rates_at(constant, env_frames=0, learner_updates=1).learning_rate == pytest.approx(5e-3)
    assert rates_at(constant, env_frames=0, learner_updates=10**6) == Rates(1e-2, 0.1)


def test_a_resumed_adamw_goes_on_identically() -> None:
    settings = AdamWSettings.model_validate(ADAMW)
    whole, first = _update(), _update()
    for step in range(3):
        whole(_batch(step), rates_at(settings, env_frames=0, learner_updates=step))
        first(_batch(step), rates_at(settings, env_frames=0, learner_updates=step))
    resumed = _update(seed=9)
    resumed.agent.load_state_dict(first.agent.state_dict())
    resumed.load_optimizer_tensors({name: tensor.clone() for name, tensor in first.optimizer_tensors().items()})
    assert any(name.endswith("/step") for name in first.optimizer_tensors())
    for step in range(3, 6):
        rates = rates_at(settings, env_frames=0, learner_updates=step)
        assert resumed(_batch(step), rates) == whole(_batch(step), rates)
    assert all(torch.equal(a, b) for a, b in zip(resumed.agent.parameters(), whole.agent.parameters(), strict=True))
    assert {name: tensor.tolist() for name, tensor in resumed.optimizer_tensors().items()} == {
        name: tensor.tolist() for name, tensor in whole.optimizer_tensors().items()
    }


def test_the_state_of_another_optimizer_is_refused() -> None:
    rmsprop, adamw = _update(optimizer={}), _update()
    rmsprop(_batch(0), 1e-3)
    with pytest.raises(CheckpointError, match=r"second_moment is not of adamw"):
        adamw.load_optimizer_tensors(rmsprop.optimizer_tensors())


def test_every_term_of_dice_is_measured_and_micro_batches_do_not_change_it() -> None:
    parts, whole = _update(learner={"batch_size": 3, "micro_batch_size": 2}), _update(learner={"batch_size": 3, "micro_batch_size": 3})
    expected, losses = whole.forward_backward(_batch(1)), parts.forward_backward(_batch(1))
    assert losses == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert losses.q > 0.0
    loss = _settings().loss
    total = loss.policy_cost * losses.policy + loss.baseline_cost * losses.value + loss.q_cost * losses.q
    assert losses.total == pytest.approx(total, rel=1e-4)


def test_the_rows_temperature_reaches_the_loss() -> None:
    update, batch = _update(), _batch(1)
    batch["inverse_temperature"][...] = 0.0
    uniform = update.forward_backward(batch)
    assert uniform.mean_rho == pytest.approx(1.0)  # whatever the logits are
    assert uniform.entropy == pytest.approx(float(torch.log(torch.tensor(float(batch["behaviour_logits"].shape[-1])))), rel=1e-5)
