"""Pixel control in addition to any loss (arXiv:1611.05397; arXiv:1809.04474, appendix)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.algorithms.pixel_control import pixel_control_loss
from herd.learning.losses.output import LossOutput, Metric

if TYPE_CHECKING:
    from herd.config.auxiliary import PixelControlSettings
    from herd.learning.forward import Forward
    from herd.learning.losses.output import Loss


def with_pixel_control(forward: Forward, loss: Loss, settings: PixelControlSettings) -> LossOutput:
    """Return ``loss`` plus the loss of pixel control on the rows that ``loss`` accepts."""
    output = loss(forward)
    assert forward.frames is not None
    assert forward.auxiliary is not None
    counts = forward.trained if output.accepted is None else output.accepted
    terms = pixel_control_loss(
        action_values=forward.auxiliary,
        planes=forward.frames,
        game_reset=forward.game_reset,
        actions=forward.actions,
        terminated=forward.terminated,
        counts=counts,
        cell_size=settings.cell_size,
        discount=settings.discount,
    )
    rows = counts.sum()
    metrics = {
        **output.metrics,
        "loss_pixel_control": Metric(terms.loss, rows, cost=settings.cost),
        "pixel_control_reward": Metric(terms.reward, rows),
    }
    return LossOutput(output.total + settings.cost * terms.loss, metrics, output.targets, output.accepted)
