"""The user's function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.components.user_code import load_user_code

if TYPE_CHECKING:
    from herd.components.losses.api import Forward, LossOutput
    from herd.components.losses.custom import CustomLossSettings


def custom(forward: Forward, settings: CustomLossSettings) -> LossOutput:
    """Call ``loss.function`` with ``loss.options`` as keyword arguments."""
    output: LossOutput = load_user_code(settings.function, "loss.function")(forward, **settings.options)
    return output
