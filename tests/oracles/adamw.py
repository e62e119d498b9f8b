"""AdamW, algorithm 2 of Loshchilov and Hutter (arXiv:1711.05101), one number at a time in float64.

The paper's schedule multiplier is the learning rate here, and its decay is the rate times the weight decay, as in libraries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.oracles.vtrace import Array


def adamw_path(
    start: Array,
    gradients: Sequence[Array],
    learning_rates: Sequence[float],
    weight_decays: Sequence[float],
    *,
    betas: tuple[float, float],
    epsilon: float,
) -> list[Array]:
    """The parameter after each gradient."""
    parameter = start.astype(np.float64).copy()
    first, second = np.zeros_like(parameter), np.zeros_like(parameter)
    path = []
    for t, (gradient, rate, decay) in enumerate(zip(gradients, learning_rates, weight_decays, strict=True), start=1):
        for index in np.ndindex(parameter.shape):
            g = float(gradient[index])
            first[index] = betas[0] * first[index] + (1.0 - betas[0]) * g
            second[index] = betas[1] * second[index] + (1.0 - betas[1]) * g * g
            unbiased_first = first[index] / (1.0 - betas[0] ** t)
            unbiased_second = second[index] / (1.0 - betas[1] ** t)
            step = unbiased_first / (math.sqrt(unbiased_second) + epsilon)
            parameter[index] -= rate * step + rate * decay * parameter[index]
        path.append(parameter.copy())
    return path
