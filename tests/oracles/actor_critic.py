"""The actor-critic losses of IMPALA (arXiv:1802.01561), sections 4.2 and 5.2.2, in float64 loops over rows and actions.

``loss_at`` is a function of logits and values alone, with fixed targets and advantages, so its finite differences are the gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tests.oracles.vtrace import Array, Mask, policy_gradient_advantages, vtrace_targets

Correction = Literal["v_trace", "one_step", "epsilon", "none"]


@dataclass(frozen=True)
class Batch:
    """[T, B] rows; ``values`` has T + 1."""

    target_logits: Array
    behaviour_logits: Array
    values: Array
    actions: NDArray[np.int64]
    rewards: Array
    terminated: Mask
    row_valid: Mask

    @property
    def rows(self) -> list[tuple[int, int]]:
        return [(t, b) for t in range(self.rewards.shape[0]) for b in range(self.rewards.shape[1])]


@dataclass(frozen=True)
class Costs:
    """One choice of all settings that the loss reads."""

    correction: Correction = "v_trace"
    clip_rho_threshold: float = 1.1
    clip_c_threshold: float = 0.9
    clip_pg_rho_threshold: float = 1.4
    lambda_: float = 1.0
    q_estimate: Literal["v_trace", "value", "v_target"] = "v_trace"
    log_epsilon: float = 1e-6
    trust_region: Literal["none", "implied", "behaviour"] = "none"
    trust_region_threshold: float = 0.1
    baseline_cost: float = 0.5
    entropy_cost: float = 0.01
    advantage_normalization: Literal["none", "batch"] = "none"
    ratio_clip: float | None = None


def softmax(logits: Array) -> Array:
    exponentials = [math.exp(logit) for logit in logits]
    return np.array([exponential / sum(exponentials) for exponential in exponentials])


def importance_ratios(batch: Batch) -> Array:
    """pi(a|x) / mu(a|x) of the taken actions, [T, B]."""
    ratios = np.zeros(batch.rewards.shape)
    for t, b in batch.rows:
        action = batch.actions[t, b]
        ratios[t, b] = softmax(batch.target_logits[t, b])[action] / softmax(batch.behaviour_logits[t, b])[action]
    return ratios


def targets_and_advantages(batch: Batch, discount: float, costs: Costs) -> tuple[Array, Array]:
    """The four corrections of section 5.2.2, each written from its own sentence."""
    discounts = np.where(batch.terminated, 0.0, discount)
    ratios = importance_ratios(batch)
    ones = np.ones_like(ratios)
    if costs.correction == "v_trace":
        target_ratios, rho_bar, c_bar = ratios, costs.clip_rho_threshold, costs.clip_c_threshold
    else:
        target_ratios, rho_bar, c_bar = ones, 1.0, 1.0
    if costs.correction in ("v_trace", "one_step"):
        policy_ratios, pg_rho_bar = ratios, costs.clip_pg_rho_threshold
    else:
        policy_ratios, pg_rho_bar = ones, 1.0
    targets = vtrace_targets(
        ratios=target_ratios,
        discounts=discounts,
        rewards=batch.rewards,
        values=batch.values,
        trace_mask=batch.row_valid,
        rho_bar=rho_bar,
        c_bar=c_bar,
        lambda_=costs.lambda_,
    )
    advantages = policy_gradient_advantages(
        targets=targets,
        ratios=policy_ratios,
        discounts=discounts,
        rewards=batch.rewards,
        values=batch.values,
        trace_mask=batch.row_valid,
        pg_rho_bar=pg_rho_bar,
        q_estimate=costs.q_estimate,
    )
    if costs.advantage_normalization == "batch":
        advantages = normalised(advantages, np.minimum(policy_ratios, pg_rho_bar), batch)
    if costs.ratio_clip is not None:
        advantages = np.where(clipped_slope(ratios, advantages, costs.ratio_clip) == 0.0, 0.0, advantages)
    return targets, advantages


def normalised(weighted: Array, weights: Array, batch: Batch) -> Array:
    """Advantages minus their importance-weighted mean, then weighted again and scaled to mean square 1."""
    valid = [row for row in batch.rows if batch.row_valid[row]]
    plain = {row: weighted[row] / weights[row] for row in valid}
    mean = sum(weights[row] * plain[row] for row in valid) / sum(weights[row] for row in valid)
    centred = {row: weights[row] * (plain[row] - mean) for row in valid}
    spread = math.sqrt(sum(value**2 for value in centred.values()) / len(valid))
    out = np.zeros_like(weighted)
    for row in valid:
        out[row] = centred[row] / spread
    return out


def clipped_slope(ratios: Array, advantages: Array, epsilon: float, step: float = 1e-7) -> Array:
    """Derivative in the ratio of PPO's objective (arXiv:1707.06347, eq. 7), min(r A, clip(r, 1 - epsilon, 1 + epsilon) A)."""

    def objective(ratio: Array) -> Array:
        return np.minimum(ratio * advantages, np.clip(ratio, 1.0 - epsilon, 1.0 + epsilon) * advantages)

    return (objective(ratios + step) - objective(ratios - step)) / (2.0 * step)


def loss_at(logits: Array, values: Array, batch: Batch, targets: Array, advantages: Array, costs: Costs) -> dict[str, float]:
    """The loss and its parts at these logits and values; targets and advantages are constants."""
    policy = value = entropy = 0.0
    for t, b in batch.rows:
        if not batch.row_valid[t, b]:
            continue
        probabilities = softmax(logits[t, b])
        taken = probabilities[batch.actions[t, b]]
        policy -= advantages[t, b] * math.log(taken + costs.log_epsilon if costs.correction == "epsilon" else taken)
        value += 0.5 * (targets[t, b] - values[t, b]) ** 2
        entropy -= sum(p * math.log(p) for p in probabilities)
    total = policy + costs.baseline_cost * value - costs.entropy_cost * entropy
    return {"total": total, "policy": policy, "value": value, "entropy": entropy}


def gradients(batch: Batch, targets: Array, advantages: Array, costs: Costs, step: float = 1e-5) -> tuple[Array, Array]:
    """d total / d logits and d total / d values by central differences."""

    def difference(name: Literal["logits", "values"], index: tuple[int, ...]) -> float:
        sides = []
        for sign in (1.0, -1.0):
            logits, values = batch.target_logits.copy(), batch.values.copy()
            (logits if name == "logits" else values)[index] += sign * step
            sides.append(loss_at(logits, values, batch, targets, advantages, costs)["total"])
        return (sides[0] - sides[1]) / (2.0 * step)

    by_logits, by_values = np.zeros_like(batch.target_logits), np.zeros_like(batch.values)
    for index in np.ndindex(by_logits.shape):
        by_logits[index] = difference("logits", index)
    for index in np.ndindex(by_values.shape):
        by_values[index] = difference("values", index)
    return by_logits, by_values
