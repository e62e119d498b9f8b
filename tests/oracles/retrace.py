"""Retrace by its definition: DiCE (arXiv:2106.00707), eq. (2), with every sum and product written out.

In float64, one unroll column at a time, without recursion. gamma may differ from step to step (0 at a termination), so the paper's
``gamma^k`` is the product of the discounts of steps t .. t+k-1. ``expected_next[t]`` is the expectation of Q under the target policy
at row t + 1.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from tests.oracles.vtrace import Array, Mask

Bootstrap = Literal["expected", "taken"]


def temporal_difference(
    t: int, b: int, *, discounts: Array, rewards: Array, q_values: Array, expected_next: Array, trace_mask: Mask, bootstrap: Bootstrap
) -> float:
    """delta^Q_t Q; 0 at a masked step, where no action was taken."""
    if not trace_mask[t, b]:
        return 0.0
    has_next_action = t + 1 < len(q_values) and trace_mask[t + 1, b]
    following = q_values[t + 1, b] if bootstrap == "taken" and has_next_action else expected_next[t, b]
    return float(rewards[t, b] + discounts[t, b] * following - q_values[t, b])


def retrace_targets(
    *,
    ratios: Array,
    discounts: Array,
    rewards: Array,
    q_values: Array,
    expected_next: Array,
    trace_mask: Mask,
    c_bar: float,
    lambda_: float,
    bootstrap: Bootstrap,
) -> Array:
    """Q~(s_t, a_t), [T, B]: Q(s_t, a_t) + sum over k of gamma^k c_{t+1} ... c_{t+k} delta_{t+k}; a masked step has c = 0."""
    num_steps, batch_size = ratios.shape
    targets = np.zeros((num_steps, batch_size))
    for b in range(batch_size):
        for t in range(num_steps):
            targets[t, b] = q_values[t, b]
            if not trace_mask[t, b]:
                continue
            for k in range(num_steps - t):
                weight = 1.0
                for i in range(k):
                    weight *= discounts[t + i, b]
                for i in range(1, k + 1):
                    weight *= lambda_ * min(ratios[t + i, b], c_bar) if trace_mask[t + i, b] else 0.0
                targets[t, b] += weight * temporal_difference(
                    t + k,
                    b,
                    discounts=discounts,
                    rewards=rewards,
                    q_values=q_values,
                    expected_next=expected_next,
                    trace_mask=trace_mask,
                    bootstrap=bootstrap,
                )
    return targets
