"""A user's own core, created and tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from herd.components.cores.api import Core
from herd.components.user_code import UserCodeError, failure, load_user_code

if TYPE_CHECKING:
    from herd.components.cores.custom import CustomCoreSettings
    from herd.networks.layers import LayerDesign


def user_core(settings: CustomCoreSettings, num_inputs: int, design: LayerDesign) -> Core:  # noqa: ARG001
    """Create the class with ``num_inputs``, ``state_size`` and its options, and run it on two rows: mistakes are found before the run.

    Raises:
        UserCodeError: it cannot be created, fails, or is no `Core` with this size; one line.
    """
    name = f"network.core {settings.code}"
    found = load_user_code(settings.code, "network.core")
    try:
        core = found(num_inputs, settings.size, **settings.options)
    except Exception as error:
        raise UserCodeError(f"{name} cannot be created from num_inputs, state_size and network.core.options: {failure(error)}") from error
    if not isinstance(core, Core):
        raise UserCodeError(f"{name} must be a herd.components.cores.api.Core")
    try:
        with torch.no_grad():
            outputs, state = core(torch.zeros(2, 3, num_inputs), torch.zeros(2, 3, dtype=torch.bool), core.initial_state(3))
    except Exception as error:
        raise UserCodeError(f"{name} fails on two rows: {failure(error)}") from error
    shapes, expected = (tuple(outputs.shape), tuple(state.shape)), ((2, 3, core.num_features), (3, settings.size))
    if shapes != expected:
        raise UserCodeError(f"{name} must return outputs [T, B, num_features] and a state [B, size], here {expected}, not {shapes}")
    return core
