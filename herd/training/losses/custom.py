"""A custom loss: a function in the user's own module (docs/extending.md)."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

from herd.components.user_code import UserCodeError, load_user_code

if TYPE_CHECKING:
    from herd.config.losses import CustomLossSettings
    from herd.training.losses.output import Loss


def imported_loss(settings: CustomLossSettings) -> Loss:
    """Return ``loss.function``, with ``loss.options`` as keyword arguments.

    Raises:
        UserCodeError: there is no such function, or it does not accept these options; the text is one line.
    """
    function = load_user_code(settings.function, "loss.function")
    try:
        inspect.signature(function).bind(None, **settings.options)
    except TypeError as error:
        raise UserCodeError(f"loss.function {settings.function} does not accept a Forward and loss.options: {error}") from error
    return partial(function, **settings.options)
