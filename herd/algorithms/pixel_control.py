"""Pixel control: "Reinforcement Learning with Unsupervised Auxiliary Tasks" (UNREAL, arXiv:1611.05397), section 3.1.

Following the appendix of "Multi-task Deep Reinforcement Learning with PopArt" (arXiv:1809.04474): the picture is a grid of cells, the
pseudo-reward of a cell is the change of its pixels in a step, and the action values of each cell are learned by n-step Q-learning from the
actions of the agent's own policy, up to the end of the unroll.

T agent steps of B unrolls, A actions, Y x X cells; H W C one picture. Time-major. Row t holds the picture ``x_t`` and the action taken
there; the picture that it led to is that of row t + 1.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from herd.algorithms.returns import scan_back
from herd.algorithms.shapes import check_rows

LARGEST_INTENSITY = 255.0
"""Intensities, and therefore pseudo-rewards, are in [0, 1], as in the authors' libraries trfl and rlax."""


class PixelControlTerms(NamedTuple):
    """Sums over the rows that count, so that the terms of parts of B add up; only ``loss`` carries a gradient."""

    loss: Tensor
    """``1/2 sum (R - Q(x, a))^2`` over rows and cells: its gradient is ``(R - Q) grad Q``."""
    reward: Tensor
    """The pseudo-rewards, averaged over the cells."""


def pseudo_rewards(planes: Tensor, game_reset: Tensor, *, grid: tuple[int, int], cell_size: int) -> Tensor:
    """Return the mean absolute change of intensity of each cell's pixels, float32 [T, B, Y, X].

    Args:
        planes: uint8 [T+1, B, H, W, C], the newest picture of each row. A stack would count a change repeatedly.
        game_reset: bool [T+1, B]. The change from the last picture of a game to the first of the next counts as 0.
        grid: Y, X. The cells lie in the middle of the picture.
        cell_size: pixels on each side of a cell.

    Raises:
        ValueError: the grid is larger than the picture.
    """
    rows, columns = grid
    height, width = rows * cell_size, columns * cell_size
    top, left = (planes.shape[2] - height) // 2, (planes.shape[3] - width) // 2
    if top < 0 or left < 0:
        raise ValueError(f"{rows} x {columns} cells of {cell_size} pixels do not fit a picture of {planes.shape[2]} x {planes.shape[3]}")
    central = planes[:, :, top : top + height, left : left + width]
    before, after = central[:-1], central[1:]
    # The numbers are unsigned: subtract the smaller from the larger.
    change = torch.maximum(before, after) - torch.minimum(before, after)
    cells = change.reshape(*change.shape[:2], rows, cell_size, columns, cell_size, -1)
    # Sums of integers, one axis after the other: exact, and on a CPU twice as fast as a mean over both axes.
    sums = cells.sum(dim=(5, 6), dtype=torch.int32).sum(dim=3)
    largest = LARGEST_INTENSITY * cell_size**2 * planes.shape[4]
    return (sums / largest).masked_fill(game_reset[1:, :, None, None], 0.0)


def cell_returns(rewards: Tensor, best_values: Tensor, terminated: Tensor, counts: Tensor, *, discount: float) -> Tensor:
    """Return ``R_t = r_t + gamma R_{t+1}`` with ``R_T = max_a Q(x_T, a)``: [T, B, Y, X].

    A row that does not count has no step, so earlier rows bootstrap there: ``R_t = max_a Q(x_t, a)``.

    Args:
        rewards: [T, B, Y, X].
        best_values: ``max_a Q(x_t, a)``, [T + 1, B, Y, X], without gradient.
        terminated: bool [T, B]; nothing after such a step counts for it. A truncated step needs no special handling: the next row holds
            the final picture and does not count.
        counts: bool [T, B].
        discount: gamma, per agent step.
    """
    discounts = (discount * (counts & ~terminated).to(rewards.dtype))[:, :, None, None]
    own = torch.where(counts[:, :, None, None], rewards, best_values[:-1])
    return scan_back(own, discounts, best_values[-1])


def pixel_control_loss(
    *,
    action_values: Tensor,
    planes: Tensor,
    game_reset: Tensor,
    actions: Tensor,
    terminated: Tensor,
    counts: Tensor,
    cell_size: int,
    discount: float,
) -> PixelControlTerms:
    """Regress the values of the taken actions, cell by cell, on n-step returns of the pseudo-rewards.

    Args:
        action_values: ``Q(x_0, .) .. Q(x_T, .)``, float32 [T + 1, B, A, Y, X] with gradient.
        planes: uint8 [T + 1, B, H, W, C].
        game_reset: bool [T + 1, B].
        actions: int64 [T, B].
        terminated: bool [T, B].
        counts: bool [T, B]: the rows that enter the loss, and whose steps enter the returns of those before them.
        cell_size: pixels on each side of a cell.
        discount: gamma, per agent step.

    Raises:
        ValueError: a shape or dtype does not fit.
    """
    if action_values.ndim != 5 or len(action_values) < 2:
        raise ValueError(f"action_values must be [T + 1, B, A, Y, X] with T >= 1, got {list(action_values.shape)}")
    if planes.ndim != 5 or planes.dtype != torch.uint8 or planes.shape[:2] != action_values.shape[:2]:
        raise ValueError(f"planes must be uint8 {[*action_values.shape[:2]]} + [H, W, C], got {planes.dtype} {list(planes.shape)}")
    check_rows(action_values.shape[:2], game_reset=game_reset)
    check_rows(action_values[1:].shape[:2], actions=actions, terminated=terminated, counts=counts)
    grid = (action_values.shape[3], action_values.shape[4])
    rewards = pseudo_rewards(planes, game_reset, grid=grid, cell_size=cell_size).to(action_values.dtype)
    best_values = action_values.detach().amax(dim=2)
    returns = cell_returns(rewards, best_values, terminated, counts, discount=discount)
    index = actions[:, :, None, None, None].expand(-1, -1, 1, *grid)
    taken = action_values[:-1].gather(2, index).squeeze(2)
    errors = (returns - taken).masked_fill(~counts[:, :, None, None], 0.0)
    return PixelControlTerms(0.5 * errors.square().sum(), rewards.mean(dim=(2, 3)).masked_fill(~counts, 0.0).sum())
