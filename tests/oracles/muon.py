"""Muon by its definition (https://kellerjordan.github.io/posts/muon) in float64, with the scale of arXiv:2502.16982.

Newton-Schulz steps change only the singular values, so here their polynomial is applied to these.
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
        parameter = parameter - rate * 0.2 * math.sqrt(max(start.shape)) * newton_schulz(ahead)
        path.append(parameter)
    return path


def newton_schulz(matrix: Array) -> Array:
    """The matrix, scaled to a norm of 1, after five steps with the coefficients of the definition: about U V^T."""
    u, values, v = np.linalg.svd(matrix, full_matrices=False)
    values = values / np.linalg.norm(matrix)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return np.asarray(u @ np.diag(values) @ v)
