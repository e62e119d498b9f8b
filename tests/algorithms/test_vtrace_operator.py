"""Appendix A on a tabular decision process: the n-step V-trace operator, its fixed point (eq. 3) and its contraction (Theorem 1).

The expectation over the behaviour policy is exact: one unroll per possible trajectory, weighted by its probability.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from herd.algorithms.vtrace import vtrace
from tests.oracles.tabular_mdp import TabularMdp, truncated_policy
from tests.oracles.vtrace import Array

torch.set_num_threads(1)

NUM_STATES, NUM_ACTIONS, LENGTH, DISCOUNT = 3, 2, 3, 0.8
RNG = np.random.default_rng(11)
MDP = TabularMdp(
    transition=RNG.dirichlet(np.ones(NUM_STATES), size=(NUM_STATES, NUM_ACTIONS)),
    reward=RNG.normal(size=(NUM_STATES, NUM_ACTIONS)),
    discount=DISCOUNT,
)
TARGET = np.array([[0.9, 0.1], [0.35, 0.65], [0.2, 0.8]])
BEHAVIOUR = np.array([[0.3, 0.7], [0.6, 0.4], [0.75, 0.25]])
STATES, ACTIONS, PROBABILITIES = MDP.trajectories(BEHAVIOUR, LENGTH)
# rho-bar, c-bar, lambda.
THRESHOLDS = [(1.0, 1.0, 1.0), (1.0, 0.4, 1.0), (1.5, 1.2, 0.5), (100.0, 1.0, 1.0), (100.0, 100.0, 0.9)]


def apply_operator(values: Array, rho_bar: float, c_bar: float, lambda_: float) -> Array:
    """R V(x) for every state x."""
    before, visited = STATES[:-1], torch.tensor(values[STATES])
    returns = vtrace(
        log_rhos=torch.tensor(np.log(TARGET[before, ACTIONS] / BEHAVIOUR[before, ACTIONS])),
        discounts=torch.full(before.shape, DISCOUNT, dtype=torch.float64),
        rewards=torch.tensor(MDP.reward[before, ACTIONS]),
        values=visited[:-1],
        bootstrap_value=visited[-1],
        clip_rho_threshold=rho_bar,
        clip_c_threshold=c_bar,
        clip_pg_rho_threshold=1.0,
        lambda_=lambda_,
    )
    moved = np.zeros(NUM_STATES)
    np.add.at(moved, STATES[0], PROBABILITIES * returns.vs[0].numpy())
    return moved


@pytest.mark.parametrize(("rho_bar", "c_bar", "lambda_"), THRESHOLDS)
def test_the_fixed_point_is_the_value_of_the_truncated_policy(rho_bar: float, c_bar: float, lambda_: float) -> None:
    values = np.zeros(NUM_STATES)
    for _ in range(300):
        values = apply_operator(values, rho_bar, c_bar, lambda_)
    expected = MDP.policy_values(truncated_policy(TARGET, BEHAVIOUR, rho_bar))
    np.testing.assert_allclose(values, expected, rtol=1e-7, atol=1e-7)


def test_no_truncation_evaluates_the_target_and_strong_truncation_the_behaviour_policy() -> None:
    of_target, of_behaviour = MDP.policy_values(TARGET), MDP.policy_values(BEHAVIOUR)
    assert np.abs(of_target - of_behaviour).min() > 0.01
    np.testing.assert_allclose(apply_operator(of_target, 100.0, 1.0, 1.0), of_target, rtol=1e-12, atol=1e-12)
    # Below the smallest ratio, every rho is rho-bar.
    rho_bar = 0.9 * (TARGET / BEHAVIOUR).min()
    np.testing.assert_allclose(apply_operator(of_behaviour, rho_bar, rho_bar, 1.0), of_behaviour, rtol=1e-12, atol=1e-12)
    assert np.abs(apply_operator(of_target, rho_bar, rho_bar, 1.0) - of_target).max() > 1e-3


@pytest.mark.parametrize(("rho_bar", "c_bar", "lambda_"), THRESHOLDS)
def test_contracts_at_least_as_fast_as_theorem_1_says(rho_bar: float, c_bar: float, lambda_: float) -> None:
    beta = (BEHAVIOUR * np.minimum(rho_bar, TARGET / BEHAVIOUR)).sum(axis=1).min()
    bound = 1.0 - (1.0 - DISCOUNT) * beta
    assert bound < 1.0
    rng = np.random.default_rng(12)
    starts = [rng.normal(size=NUM_STATES) for _ in range(20)] + [np.ones(NUM_STATES), -np.eye(NUM_STATES)[0]]
    for one in starts:
        other = rng.normal(size=NUM_STATES) if one.std() > 0 else np.zeros(NUM_STATES)
        moved = apply_operator(one, rho_bar, c_bar, lambda_) - apply_operator(other, rho_bar, c_bar, lambda_)
        assert np.abs(moved).max() <= bound * np.abs(one - other).max() + 1e-12


def test_c_bar_and_lambda_change_the_speed_but_not_the_fixed_point() -> None:
    def shrinkage(c_bar: float, lambda_: float) -> float:
        ones = np.ones(NUM_STATES)
        return float(np.abs(apply_operator(ones, 1.0, c_bar, lambda_) - apply_operator(0.0 * ones, 1.0, c_bar, lambda_)).max())

    assert shrinkage(1.0, 1.0) < shrinkage(0.4, 1.0) < 1.0
    assert shrinkage(1.0, 1.0) < shrinkage(1.0, 0.5) < 1.0
