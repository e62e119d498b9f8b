"""TensorFlow 1's ApplyRMSProp by its documentation, one number at a time in float64.

ms <- rho * ms_{t-1} + (1 - rho) * grad * grad; mom <- momentum * mom_{t-1} + lr * grad / sqrt(ms + epsilon); var <- var - mom.
The slot ``ms`` starts at 1, ``mom`` at 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.oracles.vtrace import Array


def rmsprop_path(
    start: Array, gradients: Sequence[Array], learning_rates: Sequence[float], *, decay: float, epsilon: float, momentum: float
) -> list[Array]:
    """The parameter after each gradient."""
    parameter = start.astype(np.float64).copy()
    mean_square, velocity = np.ones_like(parameter), np.zeros_like(parameter)
    path = []
    for gradient, learning_rate in zip(gradients, learning_rates, strict=True):
        for index in np.ndindex(parameter.shape):
            g = float(gradient[index])
            mean_square[index] = decay * mean_square[index] + (1.0 - decay) * g * g
            velocity[index] = momentum * velocity[index] + learning_rate * g / math.sqrt(mean_square[index] + epsilon)
            parameter[index] -= velocity[index]
        path.append(parameter.copy())
    return path
