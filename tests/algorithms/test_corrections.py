"""The differences between the four corrections of Table 2 (test_actor_critic compares them with the oracle)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from herd.algorithms.returns import CorrectedTargets, corrected_targets
from herd.components.losses import VTraceSettings
from tests.oracles.vtrace import n_step_returns

torch.set_num_threads(1)

RNG = np.random.default_rng(21)
SHAPE = (6, 4)
DISCOUNTS = np.where(RNG.random(SHAPE) < 0.2, 0.0, 0.95)
REWARDS, VALUES = RNG.normal(size=SHAPE), RNG.normal(size=(7, 4))
TARGET_LOG_PROBS, BEHAVIOUR_LOG_PROBS = -RNG.exponential(size=SHAPE), -RNG.exponential(size=SHAPE)


def targets_of(
    correction: Any, *, target: torch.Tensor | None = None, threshold: float = 0.6, log_epsilon: float = 1e-6
) -> CorrectedTargets:
    values = torch.tensor(VALUES)
    return corrected_targets(
        VTraceSettings(
            correction=correction,
            clip_rho_threshold=threshold,
            clip_c_threshold=threshold,
            clip_pg_rho_threshold=threshold,
            log_epsilon=log_epsilon,
        ),
        behaviour_log_probs=torch.tensor(BEHAVIOUR_LOG_PROBS),
        target_log_probs=torch.tensor(TARGET_LOG_PROBS) if target is None else target,
        discounts=torch.tensor(DISCOUNTS),
        rewards=torch.tensor(REWARDS),
        values=values[:-1],
        bootstrap_value=values[-1],
    )


@pytest.mark.parametrize("correction", ["none", "epsilon", "one_step"])
def test_other_corrections_use_n_step_returns_as_value_targets(correction: Any) -> None:
    expected = n_step_returns(discounts=DISCOUNTS, rewards=REWARDS, values=VALUES)
    np.testing.assert_allclose(targets_of(correction).vs.numpy(), expected, rtol=1e-12, atol=1e-12)
    assert np.abs(targets_of("v_trace").vs.numpy() - expected).min() > 1e-6


def test_one_step_weights_each_advantage_by_its_own_clipped_ratio() -> None:
    weights = np.minimum(0.6, np.exp(TARGET_LOG_PROBS - BEHAVIOUR_LOG_PROBS))
    assert (weights < 0.6).any()
    assert (weights == 0.6).any()
    expected = targets_of("none").pg_advantages.numpy() * weights
    np.testing.assert_allclose(targets_of("one_step").pg_advantages.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_epsilon_bounds_the_logarithm_and_its_gradient() -> None:
    log_probs = torch.tensor([[-0.1, -5.0, -13.8, -400.0]] * 6, dtype=torch.float64, requires_grad=True)
    policy_log_probs = targets_of("epsilon", target=log_probs).policy_log_probs
    policy_log_probs.sum().backward()
    probabilities = np.exp(log_probs.detach().numpy())
    np.testing.assert_allclose(policy_log_probs.detach().numpy(), np.log(probabilities + 1e-6), rtol=1e-12)
    assert log_probs.grad is not None
    np.testing.assert_allclose(log_probs.grad.numpy(), probabilities / (probabilities + 1e-6), rtol=1e-12)
    assert log_probs.grad[0, 3] < 1e-100


@pytest.mark.parametrize("correction", ["v_trace", "one_step", "none"])
def test_other_corrections_use_log_pi_unchanged(correction: Any) -> None:
    log_probs = torch.tensor(TARGET_LOG_PROBS, requires_grad=True)
    targets = targets_of(correction, target=log_probs)
    assert targets.policy_log_probs is log_probs
    assert not targets.vs.requires_grad
    assert not targets.pg_advantages.requires_grad
