"""A user's own torso, created and tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from herd.components.torsos.api import Torso, TorsoError
from herd.components.user_code import failure, load_user_code

if TYPE_CHECKING:
    from herd.components.torsos.custom import CustomTorsoSettings
    from herd.contract.spaces import EnvSpec
    from herd.networks.layers import LayerDesign


def user_torso(settings: CustomTorsoSettings, spec: EnvSpec, design: LayerDesign) -> Torso:  # noqa: ARG001
    """Create a user's own torso and run it on two rows, so that mistakes are found before the run starts."""
    name = settings.code
    found = load_user_code(name, "network.torso")
    try:
        torso: Torso = found(spec)
    except Exception as error:
        raise TorsoError(f"network.torso {name} cannot be created from an EnvSpec: {failure(error)}") from error
    if not isinstance(torso, nn.Module) or not isinstance(getattr(torso, "num_features", None), int):
        raise TorsoError(f"network.torso {name} must be a torch.nn.Module with the attribute num_features, an int")
    frames = torch.zeros(2, spec.observation_channels, *spec.frame_shape[:2], dtype=torch.uint8) if spec.has_frames else None
    vector = torch.zeros(2, spec.vector_size) if spec.vector_size else None
    for dtype in (torch.float32, torch.bfloat16):
        try:
            with torch.no_grad():
                features = torso.eval()(frames, vector, dtype)
        except Exception as error:
            raise TorsoError(f"network.torso {name} fails on two rows in {dtype}: {failure(error)}") from error
        if not isinstance(features, Tensor) or features.shape != (2, torso.num_features) or not features.is_floating_point():
            shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise TorsoError(f"network.torso {name} must return floats of shape [N, num_features] = (2, {torso.num_features}), not {shape}")
    return torso.train()
