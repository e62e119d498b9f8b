"""Strategies by which values of several tasks share one network: without scaling, with a head for each task, or with PopArt.

A strategy has no state: it takes and returns statistics, which can be saved, sent and compared.

Legend: T rows, B unrolls, K value heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch import nn

    from herd.components.value_scaling import ValueScalingSettings

VALUE_STATISTICS = "value_statistics"
"""Name of the statistics' part of a checkpoint."""

Statistics = dict[str, Tensor]
"""Statistics by name, on the device; empty if the strategy has none."""


class UnrollTargets(NamedTuple):
    """The targets of a batch, one row for each unroll, from which statistics are computed."""

    mean: Tensor
    """float64 [B], mean over the trained rows."""
    mean_square: Tensor
    """float64 [B], mean of the squares over the trained rows."""
    num_rows: Tensor
    """float64 [B], number of trained rows."""
    task_ids: Tensor
    """int64 [B]."""
    is_replayed: Tensor
    """bool [B]."""


class ValueScaling(Protocol):
    """The interface of a strategy."""

    has_statistics: bool
    """Whether there are statistics, so that ``updated`` must be called."""

    def initial(self, device: torch.device | str) -> Statistics:
        """Return the statistics of a new run."""

    def values(self, statistics: Statistics, heads: Tensor, task_ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the acting task's un-normalised values [T, B] from the heads' output [T, B, K], and the losses' divisor [B] or None."""

    def updated(self, statistics: Statistics, targets: UnrollTargets) -> Statistics:
        """Return the statistics after an update with these targets of all shards, in the order of their ranks."""

    def rescale(self, value_head: nn.Linear, before: Statistics, after: Statistics) -> None:
        """Rewrite the value layer so that the un-normalised values do not change."""

    def by_task(self, statistics: Statistics) -> dict[str, list[float]]:
        """Return numbers for the learning curve, one for each task, by name; waits for the device."""


class Unscaled:
    """The values of the acting task's head, or of the only head, without scaling."""

    has_statistics = False

    def __init__(self, settings: ValueScalingSettings, num_tasks: int) -> None:
        pass

    def initial(self, device: torch.device | str) -> Statistics:  # noqa: ARG002
        """See `ValueScaling`."""
        return {}

    def values(self, statistics: Statistics, heads: Tensor, task_ids: Tensor) -> tuple[Tensor, Tensor | None]:  # noqa: ARG002
        """See `ValueScaling`. Other tasks' heads have no gradient."""
        return of_task(heads, task_ids), None

    def updated(self, statistics: Statistics, targets: UnrollTargets) -> Statistics:  # noqa: ARG002
        """See `ValueScaling`."""
        return statistics

    def rescale(self, value_head: nn.Linear, before: Statistics, after: Statistics) -> None:
        """See `ValueScaling`."""

    def by_task(self, statistics: Statistics) -> dict[str, list[float]]:  # noqa: ARG002
        """See `ValueScaling`."""
        return {}


def of_task(heads: Tensor, task_ids: Tensor) -> Tensor:
    """Select each unroll's own head, or the only head: [T, B, K] -> [T, B]."""
    if heads.shape[-1] == 1:
        return heads.squeeze(-1)
    return heads.gather(-1, task_ids.expand(heads.shape[:-1]).unsqueeze(-1)).squeeze(-1)


def unroll_targets(targets: Tensor, trained: Tensor, task_ids: Tensor, is_replayed: Tensor) -> UnrollTargets:
    """Summarise the targets of the trained rows of some unrolls; both are [T, B]."""
    num_rows = trained.sum(dim=0).double()
    counted = targets.double().masked_fill(~trained, 0.0)
    divisor = num_rows.clamp(min=1.0)
    return UnrollTargets(counted.sum(dim=0) / divisor, counted.square().sum(dim=0) / divisor, num_rows, task_ids.long(), is_replayed)
