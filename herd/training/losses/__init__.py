"""The losses, one file each. A loss computes a `LossOutput` from a `Forward` and chooses the names of its metrics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from herd.config.auxiliary import PixelControlSettings
from herd.config.losses import CustomLossSettings, DiceSettings, ImpalaSettings
from herd.training.losses.custom import imported_loss
from herd.training.losses.dice import dice
from herd.training.losses.impala import impala
from herd.training.losses.pixel_control import with_pixel_control

if TYPE_CHECKING:
    from herd.config.auxiliary import AuxiliarySettings
    from herd.config.losses import LossSettings
    from herd.training.losses.output import Loss


def make_loss(settings: LossSettings) -> Loss:
    """Return the loss that the settings select.

    Raises:
        UserCodeError: a custom loss cannot be imported, or does not accept its options.
    """
    match settings:
        case ImpalaSettings():
            return partial(impala, settings=settings)
        case DiceSettings():
            return partial(dice, settings=settings)
        case CustomLossSettings():
            return imported_loss(settings)


def with_auxiliary(loss: Loss, settings: AuxiliarySettings) -> Loss:
    """Return the loss plus the auxiliary loss that the settings select."""
    match settings:
        case PixelControlSettings():
            return partial(with_pixel_control, loss=loss, settings=settings)
        case _:
            return loss
