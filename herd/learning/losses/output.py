"""What a loss gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor  # noqa: TC002  a NamedTuple's

from herd.learning.forward import Forward


class Metric(NamedTuple):
    """A number about a batch, kept so that those of its parts add up: numerators and denominators are summed, then divided."""

    numerator: Tensor
    """Scalar on the device."""
    denominator: Tensor | None = None
    """Scalar; None: the number is the sum of the numerators."""
    cost: float | None = None
    """What multiplies it in the total; None: it is no term of the loss."""


class LossOutput(NamedTuple):
    """Of one part of a batch."""

    total: Tensor
    """Scalar with gradient: summed over the accepted rows. ``loss.reduction`` is applied by the trainer."""
    metrics: dict[str, Metric]
    """By name, the same ones in every part. ``total`` and those with a cost are drawn as terms of the loss: call these ``loss_...``."""
    targets: Tensor | None = None
    """float32 [T, B], what the values are fitted to, un-normalised and without gradient: the statistics of ``value_scaling.kind: popart``
    are of these. None: there are none."""
    accepted: Tensor | None = None
    """bool [T, B], the trained rows that entered the total; those that a trust region rejects enter no auxiliary loss and no statistics
    of the values either. None: all trained rows did."""


Loss = Callable[[Forward], LossOutput]
