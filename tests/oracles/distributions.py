"""Distributions of actions in float64, from their definitions: sums over all actions, integrals over a fine grid, one number at a time."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


def joint_table(probabilities: Sequence[NDArray[np.float64]]) -> dict[tuple[int, ...], float]:
    """The probability of every action of independent integers."""
    return {
        action: math.prod(each[value] for each, value in zip(probabilities, action, strict=True))
        for action in product(*(range(len(each)) for each in probabilities))
    }


def table_entropy(table: dict[tuple[int, ...], float]) -> float:
    """``-sum p log p`` over the actions that are possible."""
    return -sum(p * math.log(p) for p in table.values() if p > 0.0)


def table_kl(one: dict[tuple[int, ...], float], other: dict[tuple[int, ...], float]) -> float:
    """``sum p log (p / q)`` over the actions that are possible."""
    return sum(p * math.log(p / other[action]) for action, p in one.items() if p > 0.0)


def normal_density(x: float | NDArray[np.float64], mean: float, deviation: float) -> NDArray[np.float64]:
    """The bell curve."""
    return np.exp(-0.5 * ((np.asarray(x) - mean) / deviation) ** 2) / (deviation * math.sqrt(2.0 * math.pi))


def squashed_density(a: float | NDArray[np.float64], mean: float, deviation: float) -> NDArray[np.float64]:
    """Density of ``tanh x``: that of x at ``atanh a``, over the slope ``d tanh x / dx = 1 - a^2``."""
    a = np.asarray(a)
    return normal_density(np.arctanh(a), mean, deviation) / (1.0 - a**2)


def normal_expectation(f: Callable[[NDArray[np.float64]], NDArray[np.float64]], mean: float, deviation: float) -> float:
    """``E f(x)`` by a Riemann sum over twelve deviations to each side."""
    z, step = np.linspace(-12.0, 12.0, 200_001, retstep=True)
    return float((normal_density(z, 0.0, 1.0) * f(mean + deviation * z)).sum() * step)


def numeric_gradient(f: Callable[[NDArray[np.float64]], float], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Central differences."""
    step = 1e-6
    return np.array([(f(at + step * unit) - f(at - step * unit)) / (2 * step) for unit in np.eye(len(at))])
