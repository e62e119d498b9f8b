"""Pixel control in addition to any loss (arXiv:1611.05397; arXiv:1809.04474, appendix)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.algorithms.pixel_control import pixel_control_loss
from herd.components.auxiliary.pixel_control.head import PixelControlHead
from herd.components.losses.api import LossOutput, Metric

if TYPE_CHECKING:
    from herd.components.auxiliary.pixel_control import PixelControlSettings
    from herd.components.losses.api import Forward
    from herd.contract.spaces import EnvSpec


class PixelControl:
    """See `herd.components.auxiliary.api.Auxiliary`."""

    def __init__(self, settings: PixelControlSettings) -> None:
        self._settings = settings

    def head(self, spec: EnvSpec, num_features: int) -> PixelControlHead:
        """Return the action values of each cell."""
        return PixelControlHead(num_features, spec.actions.num_actions, self._settings.grid(spec))

    def added_to(self, output: LossOutput, forward: Forward) -> LossOutput:
        """Return ``output`` plus the loss of pixel control."""
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
            cell_size=self._settings.cell_size,
            discount=self._settings.discount,
        )
        rows = counts.sum()
        metrics = {
            **output.metrics,
            "loss_pixel_control": Metric(terms.loss, rows, cost=self._settings.cost),
            "pixel_control_reward": Metric(terms.reward, rows),
        }
        # Not `_replace`, whose result torch.compile cannot return in every release.
        return LossOutput(output.total + self._settings.cost * terms.loss, metrics, output.targets, output.accepted)
