"""The metrics of a loss, summed over the parts of a batch and over the shards; they stay on the device until they are read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from herd.components.user_code import UserCodeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.components.losses.api import Metric
    from herd.training.parallel import Shards

MAX_METRICS = 32
"""Maximum number of metrics of a loss: each is one or two series per shard, and a column of metrics.jsonl."""
TOTAL = "loss_total"
RESERVED_COLUMNS = frozenset(
    [
        "wall_seconds",
        "env_frames",
        "agent_steps",
        "learner_updates",
        "frames_per_second",
        "episode_return_mean_100",
        "episodes",
        "policy_lag_mean",
        "policy_lag_max",
        "learning_rate",
        "gradient_norm",
        "clipped_share",
        "updates_skipped",
        "health",
        "task_frames_spread",
        "human_normalised_mean_capped",
        "tasks",
        "population",
    ]
)
"""The other columns of metrics.jsonl."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


class Measured(NamedTuple):
    """A metric over a whole batch."""

    value: float
    cost: float | None = None
    """Its factor in the total; None if it is not a term of the loss."""


class MetricSums:
    """The sums of one update."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._costs: tuple[float | None, ...] = ()
        self._denominators: tuple[int | None, ...] = ()
        """Index of each metric's denominator in ``_sums``."""
        self._sums: Tensor | None = None

    def add(self, metrics: Mapping[str, Metric]) -> None:
        """Add the metrics of one part of the batch.

        Raises:
            UserCodeError: a name is invalid or taken, there are too many, or the names differ from those of another part.
        """
        tensors = [metric.numerator for metric in metrics.values()]
        places: list[int | None] = []
        for metric in metrics.values():
            places.append(None if metric.denominator is None else len(tensors))
            if metric.denominator is not None:
                tensors.append(metric.denominator)
        sums = torch.stack([tensor.detach().float() for tensor in tensors])
        if self._sums is None:
            _check(metrics)
            self._names, self._denominators = tuple(metrics), tuple(places)
            self._costs = tuple(metric.cost for metric in metrics.values())
            self._sums = torch.zeros_like(sums)
        elif tuple(metrics) != self._names or tuple(places) != self._denominators:
            raise UserCodeError(f"the loss named {', '.join(metrics)} in one part of a batch, {', '.join(self._names)} in another")
        self._sums += sums

    def sums(self, shards: Shards) -> Tensor:
        """Return the sums of all shards, float32 [N] on the device. All shards must call this together."""
        assert self._sums is not None
        return shards.all_reduce_sum(self._sums)

    def measured(self, sums: Sequence[float]) -> dict[str, Measured]:
        """Return the metrics from ``sums``, which the host has read; 0 if nothing was counted."""
        values = (
            total if place is None else total / sums[place] if sums[place] else 0.0
            for total, place in zip(sums[: len(self._names)], self._denominators, strict=True)
        )
        return {name: Measured(value, cost) for name, value, cost in zip(self._names, values, self._costs, strict=True)}


def of_online_rows(losses: Mapping[str, Measured]) -> dict[str, Measured]:
    """Remove the metrics of replayed unrolls, for batches without any."""
    return {name: measured for name, measured in losses.items() if not name.endswith("_replayed")}


def _check(metrics: Mapping[str, Metric]) -> None:
    if len(metrics) > MAX_METRICS:
        raise UserCodeError(f"a loss may return at most {MAX_METRICS - 1} metrics, but this one returned {len(metrics) - 1}")
    for name, metric in metrics.items():
        if not _NAME.fullmatch(name):
            raise UserCodeError(f"the loss names a metric {name!r}: small letters, digits and underscores, at most 40, a letter first")
        if name in RESERVED_COLUMNS:
            raise UserCodeError(f"the loss names a metric {name}, which is another column of metrics.jsonl; choose another name")
        if metric.numerator.ndim or (metric.denominator is not None and metric.denominator.ndim):
            raise UserCodeError(f"the loss's metric {name} must be of scalars, not of shape {list(metric.numerator.shape)}")
