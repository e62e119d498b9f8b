"""Retrace on a tabular decision process: what its operator's fixed point is, and that it contracts by gamma (Munos et al., Theorem 1).

The expectation over the behaviour policy is exact: one unroll per possible trajectory, weighted by its probability.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from herd.algorithms.retrace import retrace
from tests.oracles.retrace import Bootstrap
from tests.oracles.tabular_mdp import TabularMdp
from tests.oracles.vtrace import Array

torch.set_num_threads(1)

NUM_STATES, NUM_ACTIONS, LENGTH, DISCOUNT = 3, 2, 3, 0.8
RNG = np.random.default_rng(13)
MDP = TabularMdp(
    transition=RNG.dirichlet(np.ones(NUM_STATES), size=(NUM_STATES, NUM_ACTIONS)),
    reward=RNG.normal(size=(NUM_STATES, NUM_ACTIONS)),
    discount=DISCOUNT,
)
TARGET = np.array([[0.9, 0.1], [0.35, 0.65], [0.2, 0.8]])
BEHAVIOUR = np.array([[0.3, 0.7], [0.6, 0.4], [0.75, 0.25]])
STATES, ACTIONS, PROBABILITIES = MDP.trajectories(BEHAVIOUR, LENGTH)
# c-bar, lambda: Table 5's, below, above, and no clip at all.
THRESHOLDS = [(1.05, 1.0), (0.4, 1.0), (1.5, 0.5), (1.05, 0.0), (100.0, 1.0)]


def action_values(policy: Array) -> Array:
    """Q^policy, [X, A]."""
    values: Array = MDP.reward + DISCOUNT * MDP.transition @ MDP.policy_values(policy)
    return values


def apply_operator(q: Array, c_bar: float, lambda_: float, *, bootstrap: Bootstrap = "expected", last: Array = TARGET) -> Array:
    """R Q(x, a) for every state and action; the unroll's end is bootstrapped with the expectation of Q under ``last``."""
    before = STATES[:-1]
    next_values = (TARGET * q).sum(axis=1)[STATES[1:]]
    next_values[-1] = (last * q).sum(axis=1)[STATES[-1]]
    targets = retrace(
        log_rhos=torch.tensor(np.log(TARGET[before, ACTIONS] / BEHAVIOUR[before, ACTIONS])),
        discounts=torch.full(before.shape, DISCOUNT, dtype=torch.float64),
        rewards=torch.tensor(MDP.reward[before, ACTIONS]),
        q_values=torch.tensor(q[before, ACTIONS]),
        next_values=torch.tensor(next_values),
        clip_c_threshold=c_bar,
        lambda_=lambda_,
        bootstrap=bootstrap,
    )
    # The probability of the rest, given the first state and action.
    weights = PROBABILITIES / BEHAVIOUR[STATES[0], ACTIONS[0]]
    moved = np.zeros_like(q)
    np.add.at(moved, (STATES[0], ACTIONS[0]), weights * targets[0].numpy())
    return moved


@pytest.mark.parametrize(("c_bar", "lambda_"), THRESHOLDS)
def test_the_fixed_point_is_the_target_policy_whatever_the_threshold(c_bar: float, lambda_: float) -> None:
    q = np.zeros((NUM_STATES, NUM_ACTIONS))
    for _ in range(200):
        q = apply_operator(q, c_bar, lambda_)
    np.testing.assert_allclose(q, action_values(TARGET), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("c_bar", "lambda_"), THRESHOLDS)
def test_the_printed_form_evaluates_the_behaviour_policy(c_bar: float, lambda_: float) -> None:
    of_behaviour = action_values(BEHAVIOUR)
    assert np.abs(of_behaviour - action_values(TARGET)).min() > 0.01
    moved = apply_operator(of_behaviour, c_bar, lambda_, bootstrap="taken", last=BEHAVIOUR)
    np.testing.assert_allclose(moved, of_behaviour, rtol=1e-12, atol=1e-12)
    assert np.abs(apply_operator(action_values(TARGET), c_bar, lambda_, bootstrap="taken") - action_values(TARGET)).max() > 1e-2


@pytest.mark.parametrize(("c_bar", "lambda_"), THRESHOLDS)
def test_contracts_by_the_discount_towards_the_target_policy(c_bar: float, lambda_: float) -> None:
    rng = np.random.default_rng(14)
    of_target = action_values(TARGET)
    for error in [rng.normal(size=of_target.shape) for _ in range(20)] + [np.ones_like(of_target), np.sign(rng.normal(size=(3, 2)))]:
        moved = apply_operator(of_target + error, c_bar, lambda_) - of_target
        assert np.abs(moved).max() <= DISCOUNT * np.abs(error).max() + 1e-12


def test_longer_traces_contract_faster() -> None:
    def shrinkage(c_bar: float, lambda_: float) -> float:
        ones = np.ones((NUM_STATES, NUM_ACTIONS))
        return float(np.abs(apply_operator(ones, c_bar, lambda_) - apply_operator(0.0 * ones, c_bar, lambda_)).max())

    assert shrinkage(1.05, 1.0) < shrinkage(0.4, 1.0) < shrinkage(1.05, 0.0) == pytest.approx(DISCOUNT)
    assert shrinkage(1.05, 1.0) < shrinkage(1.05, 0.5)
