"""Pixel control by its definition (UNREAL, arXiv:1611.05397; PopArt's appendix, arXiv:1809.04474), one number at a time in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def rewards(planes: NDArray[np.uint8], game_reset: Mask, *, grid: tuple[int, int], cell: int) -> Array:
    """Rewards [T, B, Y, X] of planes [T+1, B, H, W, C]: differences of intensities in [0, 1], averaged over pixels and channels."""
    num_rows, batch, height, width, channels = planes.shape
    top, left = (height - grid[0] * cell) // 2, (width - grid[1] * cell) // 2
    out = np.zeros((num_rows - 1, batch, *grid))
    for t, b, y, x in np.ndindex(out.shape):
        if game_reset[t + 1, b]:
            continue
        for i, j, c in np.ndindex(cell, cell, channels):
            row, column = top + y * cell + i, left + x * cell + j
            out[t, b, y, x] += abs(int(planes[t + 1, b, row, column, c]) - int(planes[t, b, row, column, c])) / 255.0
        out[t, b, y, x] /= cell * cell * channels
    return out


def returns(reward: Array, values: Array, terminated: Mask, counts: Mask, *, discount: float) -> Array:
    """Returns [T, B, Y, X] for Q [T+1, B, A, Y, X]: sums up to a termination, or up to a bootstrap at the last row or at an invalid one."""
    num_steps = len(terminated)
    out = np.zeros_like(reward)
    for t, b, y, x in np.ndindex(out.shape):
        weight, now = 1.0, t
        while now < num_steps and counts[now, b]:
            out[t, b, y, x] += weight * reward[now, b, y, x]
            weight *= discount
            if terminated[now, b]:
                weight = 0.0
                break
            now += 1
        if weight:
            out[t, b, y, x] += weight * max(values[now, b, :, y, x])
    return out


def loss_and_gradient(target: Array, values: Array, actions: NDArray[np.int64], counts: Mask) -> tuple[float, Array]:
    """Half the squared errors of the taken actions' values, and the gradient in each value."""
    loss, gradient = 0.0, np.zeros_like(values)
    for t, b, y, x in np.ndindex(target.shape):
        if counts[t, b]:
            error = float(target[t, b, y, x] - values[t, b, actions[t, b], y, x])
            loss += 0.5 * error**2
            gradient[t, b, actions[t, b], y, x] = -error
    return loss, gradient
