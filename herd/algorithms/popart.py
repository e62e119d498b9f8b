"""PopArt for several tasks: "Multi-task Deep Reinforcement Learning with PopArt" (arXiv:1809.04474), equations (6) and (13).

K tasks, B unrolls. Each task's values are learned normalised, ``(v - shift) / scale``, by statistics that follow their targets.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class PopArtStatistics(NamedTuple):
    """Float64, [K] each; a run begins with shift 0 and second moment 1."""

    shift: Tensor
    """The paper's mu."""
    second_moment: Tensor
    """The paper's nu."""


def scale_of(statistics: PopArtStatistics, *, min_scale: float, max_scale: float) -> Tensor:
    """The paper's sigma, ``sqrt(nu - mu^2)``, within its bounds: float64 [K]."""
    variance = (statistics.second_moment - statistics.shift.square()).clamp(min=0.0)
    return variance.sqrt().clamp(min_scale, max_scale)


def updated(
    statistics: PopArtStatistics, *, means: Tensor, mean_squares: Tensor, task_ids: Tensor, counts: Tensor, rate: float
) -> PopArtStatistics:
    """Update by eq. (6) once for each unroll, in order: ``mu <- (1 - beta) mu + beta x``, and likewise ``nu``.

    There is no loop over the unrolls: of n updates of a task, the i-th (from 1) has the weight ``beta (1 - beta)^(n - i)``.

    Args:
        statistics: before the batch.
        means: x of the shift, [B]: each unroll's mean target.
        mean_squares: x of the second moment, [B].
        task_ids: int64 [B].
        counts: bool [B]; an unroll that does not count has no effect, regardless of the contents of the other tensors.
        rate: beta.
    """
    same_task = (task_ids.unsqueeze(0) == task_ids.unsqueeze(1)) & counts.unsqueeze(0)
    num_later = same_task.triu(diagonal=1).sum(dim=1)
    kept = 1.0 - rate
    weights = rate * torch.pow(kept, num_later.double())
    num_updates = torch.zeros_like(statistics.shift).index_add_(0, task_ids, counts.double())

    def follow(before: Tensor, samples: Tensor) -> Tensor:
        entering = (weights * samples.double()).masked_fill(~counts, 0.0)
        return (torch.pow(kept, num_updates) * before).index_add_(0, task_ids, entering)

    return PopArtStatistics(follow(statistics.shift, means), follow(statistics.second_moment, mean_squares))


def preserving_rewrite(shift: Tensor, scale: Tensor, new_shift: Tensor, new_scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return factors for the rows of the value layer, [K], and offsets for its biases, [K], by eq. (13).

    ``w' = factor w`` and ``b' = factor b + offset`` leave ``scale (w x + b) + shift`` unchanged.
    """
    return scale / new_scale, (shift - new_shift) / new_scale
