"""Clipping by the history of norms, and a learning rate that follows the policy: rules by hand, effect in a trainer, and resume."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from herd.config.optimizers import AdamSettings, RMSPropSettings
from herd.learning.control import RATE_BOUNDS, UpdateControl
from herd.learning.optimizers import Rates, rates_at
from herd.run.checkpoints.manifest import CheckpointError
from tests.learning.small_runs import STEP, batch_of, run_of, slab_of, trainer_of, unrolls_of

CPU = torch.device("cpu")


def test_clipping_uses_a_percentile_of_the_newest_norms() -> None:
    control = UpdateControl(RMSPropSettings(max_gradient_norm=None, clip_percentile=25.0, clip_history_updates=4), CPU)
    norms = [8.0, 4.0, 6.0, 2.0, 10.0, 1.0]
    limits = []
    for norm in norms:
        limits.append(float(control.limit(torch.tensor(norm))))
        control.limit(torch.tensor(math.nan))  # the norm of a skipped update is not remembered
    for number, limit in enumerate(limits):
        newest = sorted(norms[max(0, number - 3) : number + 1])
        place = 0.25 * (len(newest) - 1)  # position in the sorted norms, between two of them
        low, high = newest[math.floor(place)], newest[math.ceil(place)]
        assert limit == pytest.approx(low + (place - math.floor(place)) * (high - low))
    bounded = UpdateControl(RMSPropSettings(max_gradient_norm=5.0, clip_percentile=100.0), CPU)
    assert [float(bounded.limit(torch.tensor(norm))) for norm in (3.0, 7.0, 1.0)] == [3.0, 5.0, 5.0]
    assert UpdateControl(RMSPropSettings(max_gradient_norm=None), CPU).limit(torch.tensor(1e9)) == math.inf


def test_the_learning_rate_follows_the_kl_of_updates() -> None:
    control = UpdateControl(RMSPropSettings(target_kl=0.01), CPU)
    multipliers: list[float] = []

    def follow(kl: float, *, is_taken: bool = True) -> None:
        control.follow(torch.tensor(kl, dtype=torch.float64), torch.tensor(is_taken))
        assert control.rate_multiplier is not None
        multipliers.append(float(control.rate_multiplier))

    for kl in (0.0201, 0.0199, 0.0051, 0.0049, math.nan, 0.5):
        follow(kl)
    assert multipliers == pytest.approx([1 / 1.5, 1 / 1.5, 1 / 1.5, 1.0, 1.0, 1 / 1.5])
    follow(0.5, is_taken=False)
    assert multipliers[-1] == multipliers[-2]
    for _ in range(200):
        follow(0.0)
    assert multipliers[-1] == RATE_BOUNDS[1]
    assert UpdateControl(RMSPropSettings(), CPU).rate_multiplier is None


def test_a_trainer_clips_at_the_percentile_and_reports_it() -> None:
    unclipped_rewards = {"unroll_length": 4, "reward_shaping": "none"}
    settings = run_of(optimizer={"max_gradient_norm": None, "clip_percentile": 50.0}, algorithm=unclipped_rewards)
    trainer = trainer_of(settings)
    longer = unrolls_of(settings)
    longer["rewards"] *= 100.0
    first, second = trainer(batch_of(settings), STEP), trainer(slab_of(settings, longer), STEP)
    assert (first.is_clipped, second.is_clipped) == (False, True)  # the first equals its own median, the second is larger
    left = math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in trainer.agent.parameters() if parameter.grad is not None))
    assert left == pytest.approx((first.gradient_norm + second.gradient_norm) / 2, rel=1e-5)


def test_too_large_a_kl_reduces_the_step() -> None:
    settings = run_of(optimizer={"target_kl": 1e-12, "kl_interval_updates": 2})
    trainer = trainer_of(settings)
    multipliers = []
    for seed in range(4):
        trainer(batch_of(settings, seed), STEP)
        multipliers.append(trainer.rate_multiplier)
    assert multipliers == pytest.approx([1.0, 1 / 1.5, 1 / 1.5, 1 / 1.5**2])
    before = [parameter.detach().clone() for parameter in trainer.agent.parameters()]
    full = trainer_of(run_of())
    full.agent.load_state_dict(trainer.agent.state_dict())
    full.load_optimizer_tensors({name: tensor.clone() for name, tensor in trainer.optimizer_tensors().items()})
    trainer(batch_of(settings, 9), STEP)
    full(batch_of(settings, 9), STEP)
    for start, slow, fast in zip(before, trainer.agent.parameters(), full.agent.parameters(), strict=True):
        torch.testing.assert_close(slow - start, (fast - start) / 1.5**2, rtol=1e-3, atol=1e-7)


def test_a_resumed_control_continues_identically() -> None:
    optimizer: dict[str, Any] = {"clip_percentile": 50.0, "target_kl": 1e-12, "kl_interval_updates": 1}
    settings = run_of(optimizer=optimizer)
    whole, first = trainer_of(settings), trainer_of(settings)
    for seed in range(3):
        whole(batch_of(settings, seed), STEP)
        first(batch_of(settings, seed), STEP)
    resumed = trainer_of(settings)
    resumed.agent.load_state_dict(first.agent.state_dict())
    resumed.load_optimizer_tensors({name: tensor.clone() for name, tensor in first.optimizer_tensors().items()})
    resumed.load_control_tensors(first.control_tensors())
    for seed in range(3, 6):
        assert resumed(batch_of(settings, seed), STEP) == whole(batch_of(settings, seed), STEP)
    assert {name: tensor.tolist() for name, tensor in resumed.control_tensors().items()} == {
        name: tensor.tolist() for name, tensor in whole.control_tensors().items()
    }
    assert trainer_of(run_of()).control_tensors() == {}
    with pytest.raises(CheckpointError, match="is invalid"):
        resumed.load_control_tensors({"norms": torch.zeros(2, 2)})


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
