"""Adam and AdamW in the learner: their schedules, and a resume that changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from herd.checkpoints.store import CheckpointError
from herd.config.optimizers import AdamSettings, AdamWSettings
from herd.config.settings import RunSettings
from herd.learning.batch import Slab
from herd.learning.optimizers import Rates, rates_at
from tests.learning.small_runs import batch_of, run_of, trainer_of

ADAMW = {"kind": "adamw", "learning_rate": 1e-2, "warmup_updates": 4, "schedule_updates": 20, "weight_decay": 0.1, "epsilon": 1e-6}


def _settings(**changes: Any) -> RunSettings:
    return run_of(**{"loss": {"kind": "dice"}, "optimizer": ADAMW, **changes})


def _batch(seed: int) -> Slab:
    return batch_of(_settings(), seed)


def test_adamw_rates_warm_up_and_decay_to_0() -> None:
    settings = AdamWSettings.model_validate(ADAMW)
    rates = [rates_at(settings, env_frames=10**9, learner_updates=update) for update in range(22)]
    assert [rate.learning_rate for rate in rates[:4]] == pytest.approx([2.5e-3, 5e-3, 7.5e-3, 1e-2])
    assert max(rate.learning_rate for rate in rates) == pytest.approx(1e-2)
    assert rates[12] == pytest.approx(Rates(5e-3, 0.04))
    assert (rates[0].weight_decay, rates[20], rates[21]) == (0.1, Rates(0.0, 0.0), Rates(0.0, 0.0))
    constant = settings.model_copy(update={"schedule": "constant"})
    assert rates_at(constant, env_frames=0, learner_updates=1).learning_rate == pytest.approx(5e-3)
    assert rates_at(constant, env_frames=0, learner_updates=10**6) == Rates(1e-2, 0.1)


def test_a_resumed_adamw_continues_identically() -> None:
    settings = AdamWSettings.model_validate(ADAMW)
    whole, first = trainer_of(_settings()), trainer_of(_settings())
    for step in range(3):
        whole(_batch(step), rates_at(settings, env_frames=0, learner_updates=step))
        first(_batch(step), rates_at(settings, env_frames=0, learner_updates=step))
    resumed = trainer_of(_settings(seed=9))
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
    rmsprop, adamw = trainer_of(_settings(optimizer={})), trainer_of(_settings())
    rmsprop(_batch(0), Rates(1e-3))
    with pytest.raises(CheckpointError, match="second_moment does not belong to adamw"):
        adamw.load_optimizer_tensors(rmsprop.optimizer_tensors())


def test_adam_agrees_with_the_definition_and_decays_by_env_frames() -> None:
    settings = AdamSettings(learning_rate=1e-2, schedule_env_frames=1000, max_gradient_norm=None)
    assert [rates_at(settings, env_frames=frames, learner_updates=5) for frames in (0, 250, 2000)] == [
        Rates(1e-2),
        Rates(7.5e-3),
        Rates(0.0),
    ]
    trainer = trainer_of(run_of(optimizer={"kind": "adam", "max_gradient_norm": None}))
    before = {name: tensor.numpy().astype(np.float64) for name, tensor in trainer.weights().items()}
    trainer(batch_of(run_of()), Rates(1e-2))
    for name, parameter in trainer.agent.named_parameters():
        assert parameter.grad is not None
        gradient = parameter.grad.numpy().astype(np.float64)
        # At the first step both moments equal those of the gradient itself: arXiv:1412.6980, algorithm 1.
        expected = before[name] - 1e-2 * gradient / (np.abs(gradient) + 1e-5)
        np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-4, atol=2e-6, err_msg=name)
