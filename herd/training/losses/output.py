"""The result of a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor  # noqa: TC002  a NamedTuple's

from herd.training.forward import Forward


class Metric(NamedTuple):
    """A number about a batch as a fraction: numerators and denominators of its parts are summed, and then divided."""

    numerator: Tensor
    """Scalar on the device."""
    denominator: Tensor | None = None
    """Scalar; None: the metric is the sum of the numerators."""
    cost: float | None = None
    """Factor of this term in the total; None: the metric is not a term of the loss."""


class LossOutput(NamedTuple):
    """The result for one part of a batch."""

    total: Tensor
    """Scalar with gradient, summed over the accepted rows. The trainer applies ``loss.reduction``."""
    metrics: dict[str, Metric]
    """Metrics by name, with the same names in every part. Those with a cost are drawn as terms of the loss: name them ``loss_...``."""
    targets: Tensor | None = None
    """float32 [T, B], targets of the values, un-normalised and without gradient; ``value_scaling.kind: popart`` computes its statistics
    from them. None: the loss has none."""
    accepted: Tensor | None = None
    """bool [T, B], the trained rows that entered the total. Other rows enter neither auxiliary losses nor statistics of the values.
    None: all trained rows entered the total."""


Loss = Callable[[Forward], LossOutput]
