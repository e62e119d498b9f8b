"""PopArt's statistics in training (arXiv:1809.04474)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from herd.algorithms.popart import PopArtStatistics, preserving_rewrite, scale_of, updated
from herd.components.value_scaling.api import of_task

if TYPE_CHECKING:
    from torch import Tensor, nn

    from herd.components.value_scaling.api import Statistics, UnrollTargets
    from herd.components.value_scaling.popart import PopArtSettings


class PopArt:
    """The values of the acting task's head, un-normalised by running statistics of its targets."""

    has_statistics = True

    def __init__(self, settings: PopArtSettings, num_tasks: int) -> None:
        self._settings = settings
        self._num_tasks = num_tasks

    def initial(self, device: torch.device | str) -> Statistics:
        """See `ValueScaling`."""
        zeros = torch.zeros(self._num_tasks, dtype=torch.float64, device=device)
        return {"shift": zeros, "second_moment": torch.ones_like(zeros)}

    def values(self, statistics: Statistics, heads: Tensor, task_ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """See `ValueScaling`."""
        scale = self._scale(statistics)[task_ids].to(heads.dtype)
        shift = statistics["shift"][task_ids].to(heads.dtype)
        return of_task(heads, task_ids) * scale + shift, scale

    def updated(self, statistics: Statistics, targets: UnrollTargets) -> Statistics:
        """See `ValueScaling`."""
        counts = targets.num_rows > 0
        if not self._settings.replayed:
            counts = counts & ~targets.is_replayed
        of_means = self._settings.second_moment == "unroll_means"
        after = updated(
            PopArtStatistics(**statistics),
            means=targets.mean,
            mean_squares=targets.mean.square() if of_means else targets.mean_square,
            task_ids=targets.task_ids,
            counts=counts,
            rate=self._settings.rate,
        )
        return after._asdict()

    @torch.no_grad()
    def rescale(self, value_head: nn.Linear, before: Statistics, after: Statistics) -> None:
        """See `ValueScaling`. The optimizer's state is left as it is."""
        factor, offset = preserving_rewrite(before["shift"], self._scale(before), after["shift"], self._scale(after))
        weight, bias = value_head.weight, value_head.bias
        weight.mul_(factor.to(weight.dtype).unsqueeze(1))
        bias.mul_(factor.to(bias.dtype)).add_(offset.to(bias.dtype))

    def by_task(self, statistics: Statistics) -> dict[str, list[float]]:
        """See `ValueScaling`."""
        return {"value_shift": statistics["shift"].tolist(), "value_scale": self._scale(statistics).tolist()}

    def _scale(self, statistics: Statistics) -> Tensor:
        bounds = self._settings
        return scale_of(PopArtStatistics(**statistics), min_scale=bounds.min_scale, max_scale=bounds.max_scale)
