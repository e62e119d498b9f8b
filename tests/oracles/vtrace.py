"""V-trace by its definition: IMPALA (arXiv:1802.01561), eqs. (1) and (2) and section 4.2, with every sum and product written out.

In float64, one unroll column at a time, without recursion. ``values`` has T + 1 rows. gamma may differ from step to step (0 at a
termination), so the paper's ``gamma^(t-s)`` is the product of the discounts of steps s .. t-1.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def vtrace_targets(
    *, ratios: Array, discounts: Array, rewards: Array, values: Array, trace_mask: Mask, rho_bar: float, c_bar: float, lambda_: float
) -> Array:
    """v_s of eq. (1) with Remark 2's lambda, [T, B]; a masked step has rho = c = 0."""
    num_steps, batch_size = ratios.shape
    targets = np.zeros((num_steps, batch_size))
    for b in range(batch_size):
        for s in range(num_steps):
            total = values[s, b]
            for t in range(s, num_steps):
                weight = 1.0
                for i in range(s, t):
                    c_i = lambda_ * min(c_bar, ratios[i, b]) if trace_mask[i, b] else 0.0
                    weight *= discounts[i, b] * c_i
                rho_t = min(rho_bar, ratios[t, b]) if trace_mask[t, b] else 0.0
                total += weight * rho_t * (rewards[t, b] + discounts[t, b] * values[t + 1, b] - values[t, b])
            targets[s, b] = total
    return targets


def policy_gradient_advantages(
    *,
    targets: Array,
    ratios: Array,
    discounts: Array,
    rewards: Array,
    values: Array,
    trace_mask: Mask,
    pg_rho_bar: float,
    q_estimate: Literal["v_trace", "value", "v_target"],
) -> Array:
    """rho_s (q_s - V(x_s)), [T, B]; q_s of section 4.2 (``v_trace``), appendix E.3 (``value``), LASER's Algorithm 1 (``v_target``)."""
    num_steps, batch_size = ratios.shape
    advantages = np.zeros((num_steps, batch_size))
    for b in range(batch_size):
        for s in range(num_steps):
            if not trace_mask[s, b]:
                continue
            is_last = s == num_steps - 1
            following = values[s + 1, b] if q_estimate == "value" or is_last else targets[s + 1, b]
            q_s = targets[s, b] if q_estimate == "v_target" else rewards[s, b] + discounts[s, b] * following
            advantages[s, b] = min(pg_rho_bar, ratios[s, b]) * (q_s - values[s, b])
    return advantages


def n_step_returns(*, discounts: Array, rewards: Array, values: Array) -> Array:
    """Eq. (2): discounted rewards to the unroll's end plus the discounted V(x_{s+n}), [T, B]."""
    num_steps, batch_size = rewards.shape
    returns = np.zeros((num_steps, batch_size))
    for b in range(batch_size):
        for s in range(num_steps):
            for t in range(s, num_steps):
                returns[s, b] += np.prod(discounts[s:t, b]) * rewards[t, b]
            returns[s, b] += np.prod(discounts[s:, b]) * values[num_steps, b]
    return returns


def lambda_returns(*, discounts: Array, rewards: Array, values: Array, lambda_: float) -> Array:
    """Forward view of TD(lambda) over the unroll, [T, B]: n-step returns weighted by (1 - lambda) lambda^(n-1), the rest to the longest."""
    num_steps, batch_size = rewards.shape
    returns = np.zeros((num_steps, batch_size))
    for b in range(batch_size):
        for s in range(num_steps):
            longest = num_steps - s
            for n in range(1, longest + 1):
                n_step = sum(np.prod(discounts[s:t, b]) * rewards[t, b] for t in range(s, s + n))
                n_step += np.prod(discounts[s : s + n, b]) * values[s + n, b]
                weight = lambda_ ** (n - 1) * (1.0 if n == longest else 1.0 - lambda_)
                returns[s, b] += weight * n_step
    return returns
