"""DiCE's losses (arXiv:2106.00707) in float64 loops over rows and actions: V by eqs. (4) and (5), Q by eqs. (2) and (3), pi by eq. (8).

The gradients are the printed directions themselves, row by row, rather than derivatives of a loss. Table 5 scales them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tests.oracles.retrace import Bootstrap, retrace_targets
from tests.oracles.vtrace import Array, Mask, policy_gradient_advantages, vtrace_targets


@dataclass(frozen=True)
class Batch:
    """[T, B] rows; ``advantages`` and ``values`` have T + 1."""

    advantages: Array
    values: Array
    behaviour_advantages: Array
    inverse_temperature: Array
    actions: NDArray[np.int64]
    rewards: Array
    terminated: Mask
    row_valid: Mask

    @property
    def rows(self) -> list[tuple[int, int]]:
        return [(t, b) for t in range(self.rewards.shape[0]) for b in range(self.rewards.shape[1])]

    @property
    def valid_rows(self) -> list[tuple[int, int]]:
        return [row for row in self.rows if self.row_valid[row]]


@dataclass(frozen=True)
class Costs:
    """One choice of all settings that the loss reads. All thresholds differ, so that confusing two shows."""

    correction: Literal["v_trace", "one_step", "epsilon", "none"] = "v_trace"
    clip_rho_threshold: float = 1.1
    clip_c_threshold: float = 0.9
    clip_pg_rho_threshold: float = 1.4
    lambda_: float = 1.0
    q_estimate: Literal["v_trace", "value", "v_target"] = "v_trace"
    log_epsilon: float = 1e-6
    trust_region: Literal["none", "implied", "behaviour"] = "none"
    trust_region_threshold: float = 0.1
    baseline_cost: float = 1.0
    q_cost: float = 10.0
    policy_cost: float = 10.0
    entropy_cost: float = 123.0
    """A setting of another loss, which this one must not read."""
    advantage_normalization: Literal["none", "batch"] = "none"
    """A setting of another loss."""
    ratio_clip: float | None = None
    """A setting of another loss."""
    retrace_bootstrap: Bootstrap = "expected"
    ablation: Literal["dice", "baseline", "random", "entropy"] = "dice"


def boltzmann(advantages: Array, inverse_temperature: float) -> Array:
    """pi_tau proportional to exp(A / tau), section 3.1."""
    largest = max(advantages)
    weights = [math.exp((advantage - largest) * inverse_temperature) for advantage in advantages]
    return np.array([weight / sum(weights) for weight in weights])


def entropy(policy: Array) -> float:
    return -math.fsum(p * math.log(p) for p in policy if p > 0.0)


def importance_ratios(batch: Batch) -> Array:
    """pi_tau(a|s) / mu_tau(a|s) of the taken actions, both at the row's temperature, [T, B]."""
    ratios = np.ones(batch.rewards.shape)
    for row in batch.rows:
        action, inverse_temperature = batch.actions[row], batch.inverse_temperature[row]
        target = boltzmann(batch.advantages[row], inverse_temperature)[action]
        ratios[row] = target / boltzmann(batch.behaviour_advantages[row], inverse_temperature)[action]
    return ratios


def q_value(batch: Batch, t: int, b: int, action: int) -> float:
    """Q = V + A."""
    return float(batch.values[t, b] + batch.advantages[t, b, action])


def expected_next_q(batch: Batch) -> Array:
    """Expectation of Q at row t + 1 under pi_tau, with the temperature of the episode of step t, [T, B]."""
    expected = np.zeros(batch.rewards.shape)
    for t, b in batch.rows:
        policy = boltzmann(batch.advantages[t + 1, b], batch.inverse_temperature[t, b])
        expected[t, b] = sum(probability * q_value(batch, t + 1, b, action) for action, probability in enumerate(policy))
    return expected


@dataclass(frozen=True)
class Constants:
    """V~ and Q~, and the weight rho (r + gamma V~ - V) of the policy gradient, each [T, B]."""

    v_targets: Array
    q_targets: Array
    policy_weights: Array


def constants(batch: Batch, discount: float, costs: Costs) -> Constants:
    discounts = np.where(batch.terminated, 0.0, discount)
    ratios = importance_ratios(batch)
    ones = np.ones_like(ratios)
    # Section 5.2.2 of IMPALA: the other corrections learn values as if on-policy.
    corrects = costs.correction == "v_trace"
    target_ratios, c_bar = (ratios, costs.clip_c_threshold) if corrects else (ones, 1.0)
    rows = {"discounts": discounts, "rewards": batch.rewards, "trace_mask": batch.row_valid}
    v_targets = vtrace_targets(
        **rows,
        ratios=target_ratios,
        values=batch.values,
        rho_bar=costs.clip_rho_threshold if corrects else 1.0,
        c_bar=c_bar,
        lambda_=costs.lambda_,
    )
    q_targets = retrace_targets(
        **rows,
        ratios=target_ratios,
        q_values=np.array([[q_value(batch, t, b, a) for b, a in enumerate(actions)] for t, actions in enumerate(batch.actions)]),
        expected_next=expected_next_q(batch),
        c_bar=c_bar,
        lambda_=costs.lambda_,
        bootstrap=costs.retrace_bootstrap,
    )
    policy_weights = policy_gradient_advantages(
        **rows,
        targets=v_targets,
        ratios=ratios if costs.correction in ("v_trace", "one_step") else ones,
        values=batch.values,
        pg_rho_bar=costs.clip_pg_rho_threshold if costs.correction in ("v_trace", "one_step") else 1.0,
        q_estimate=costs.q_estimate,
    )
    if costs.correction == "epsilon":
        for row in batch.rows:
            taken = boltzmann(batch.advantages[row], batch.inverse_temperature[row])[batch.actions[row]]
            policy_weights[row] *= taken / (taken + costs.log_epsilon)
    return Constants(v_targets, q_targets, policy_weights)


def losses(batch: Batch, fixed: Constants, costs: Costs) -> dict[str, float]:
    policy = value = q = total_entropy = 0.0
    for t, b in batch.valid_rows:
        action = int(batch.actions[t, b])
        pi = boltzmann(batch.advantages[t, b], batch.inverse_temperature[t, b])
        mean_advantage = sum(p * advantage for p, advantage in zip(pi, batch.advantages[t, b], strict=True))
        policy -= fixed.policy_weights[t, b] * (batch.advantages[t, b, action] - mean_advantage)
        value += 0.5 * (fixed.v_targets[t, b] - batch.values[t, b]) ** 2
        q += 0.5 * (fixed.q_targets[t, b] - q_value(batch, t, b, action)) ** 2
        total_entropy += entropy(pi)
    parts = {"policy": policy, "value": value, "q": q, "entropy": total_entropy}
    total = costs.policy_cost * parts["policy"] + costs.baseline_cost * parts["value"] + costs.q_cost * parts["q"]
    if costs.ablation == "entropy":
        total -= 1.0 * parts["entropy"]
    return {"total": total, **parts}


def gradients(batch: Batch, fixed: Constants, costs: Costs) -> tuple[Array, Array]:
    """The negated ascent directions of eqs. (3), (5) and (8), for advantages [T + 1, B, A] and values [T + 1, B]."""
    by_advantages, by_values = np.zeros_like(batch.advantages), np.zeros_like(batch.values)
    for t, b in batch.valid_rows:
        action = int(batch.actions[t, b])
        pi = boltzmann(batch.advantages[t, b], batch.inverse_temperature[t, b])
        # (V~ - V) grad V.
        by_values[t, b] -= costs.baseline_cost * (fixed.v_targets[t, b] - batch.values[t, b])
        # (Q~ - Q) grad Q with grad Q = grad V + grad A.
        q_error = fixed.q_targets[t, b] - q_value(batch, t, b, action)
        by_values[t, b] -= costs.q_cost * q_error
        by_advantages[t, b, action] -= costs.q_cost * q_error
        for c in range(len(pi)):
            # rho (...) (1 - pi) grad v.
            by_advantages[t, b, c] -= costs.policy_cost * fixed.policy_weights[t, b] * (float(c == action) - pi[c])
            if costs.ablation == "entropy" and pi[c] > 0.0:
                # dH / dA_c = - (1 / tau) pi_c (log pi_c + H).
                by_advantages[t, b, c] += batch.inverse_temperature[t, b] * pi[c] * (math.log(pi[c]) + entropy(pi))
    return by_advantages, by_values
