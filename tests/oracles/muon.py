"""Muon by its definition (https://kellerjordan.github.io/posts/muon) in float64, with the exact U V^T of each step and the scale of
arXiv:2502.16982.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.oracles.vtrace import Array


def muon_path(start: Array, gradients: Sequence[Array], learning_rates: Sequence[float], *, momentum: float) -> list[Array]:
    """The matrix, [outputs, inputs], after each gradient."""
    parameter, mean = start.astype(np.float64).copy(), np.zeros(start.shape)
    path = []
    for gradient, rate in zip(gradients, learning_rates, strict=True):
        mean = momentum * mean + (1.0 - momentum) * gradient
        ahead = momentum * mean + (1.0 - momentum) * gradient
        u, _, v = np.linalg.svd(ahead, full_matrices=False)
        parameter = parameter - rate * 0.2 * math.sqrt(max(start.shape)) * (u @ v)
        path.append(parameter)
    return path
