"""LASER (arXiv:1909.11583) from its printed equations: the implied policy (3), relevance (section 4.3), trust-region V-trace (8).

In float64, one step at a time, with every sum and product written out. Probabilities are used directly; logarithms occur only in the
divergence.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from tests.oracles.vtrace import Array, Mask


def implied_policy(target: Array, behaviour: Array, rho_bar: float) -> Array:
    """The implied policy of eq. (3) for two distributions, [A]."""
    clipped = [min(rho_bar * mu, pi) for mu, pi in zip(behaviour, target, strict=True)]
    return np.array([each / sum(clipped) for each in clipped])


def kl(one: Array, other: Array) -> float:
    """KL(one || other) in nats."""
    return math.fsum(p * math.log(p / q) for p, q in zip(one, other, strict=True) if p > 0.0)


def divergences(target: Array, behaviour: Array, rho_bar: float, reference: Literal["implied", "behaviour"]) -> Array:
    """beta of section 4.3 or of Algorithm 1 for distributions [T, B, A]: [T, B]."""
    num_steps, batch_size, _ = target.shape
    found = np.zeros((num_steps, batch_size))
    for t in range(num_steps):
        for b in range(batch_size):
            pi, mu = target[t, b], behaviour[t, b]
            found[t, b] = kl(pi, implied_policy(pi, mu, rho_bar) if reference == "implied" else mu)
    return found


def trust_region_returns(
    *, lambdas: Array, ratios: Array, discounts: Array, rewards: Array, values: Array, rho_bar: float, c_bar: float
) -> Array:
    """G of eq. (8), [T, B], to the end of the unroll; ``lambdas`` are the indicators lambda(s_t), and ``values`` has T + 1 rows."""
    num_steps, batch_size = ratios.shape
    returns = np.zeros((num_steps, batch_size))
    for b in range(batch_size):
        for t in range(num_steps):
            returns[t, b] = values[t, b]
            for k in range(num_steps - t):
                weight = lambdas[t + k, b] * min(ratios[t + k, b], rho_bar)
                for i in range(k):
                    weight *= discounts[t + i, b] * lambdas[t + i, b] * min(ratios[t + i, b], c_bar)
                error = rewards[t + k, b] + discounts[t + k, b] * values[t + k + 1, b] - values[t + k, b]
                returns[t, b] += weight * error
    return returns


def accepted(row_valid: Mask, divergence: Array, threshold: float) -> Mask:
    """Valid steps whose behaviour policy is relevant."""
    mask: Mask = row_valid & (divergence < threshold)
    return mask
