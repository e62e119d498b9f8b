"""What a torso is: the interface of IMPALA's Fig. 3 between observations and core, arXiv:1802.01561.

Shapes: N rows (time folded into the batch), C channels of the stacked observation, H x W pixels, D numbers of a vector, F features.

The last feature map is flattened in (height, width, channel) order, which is a view of channels_last memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from herd.components.torsos import TORSOS
from herd.networks.layers import PLAIN, Dense, LayerDesign, Rectifier

if TYPE_CHECKING:
    from herd.components.torsos import TorsoSettings
    from herd.contract.spaces import EnvSpec


class TorsoError(ValueError):
    """The torso cannot be built for these observations; one line."""


class Torso(nn.Module):
    """Turns observations into F features; ``num_features`` is F.

    ``network.torso`` also accepts ``module:Class`` from a user's own file: any ``nn.Module`` that is created from an `EnvSpec` and has
    ``num_features`` and a ``forward`` like this one.
    """

    num_features: int

    def forward(self, frames: Tensor | None, vector: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Compute the features of N rows.

        Args:
            frames: uint8 [N, C, H, W] in any memory format; None if the suite's observations have no frames.
            vector: float32 [N, D]; None if they have no vector.
            dtype: precision of convolutions and products, float32 or bfloat16.

        Returns:
            Float [N, F] in any precision.
        """
        raise NotImplementedError


class BesideVector(Torso):
    """A torso for frames whose features are concatenated with the observation's vector; a layer with a ReLU mixes both.

    With linear heads alone, the vector could not determine the action for a picture.
    """

    def __init__(self, frames: Torso, vector_size: int, design: LayerDesign = PLAIN) -> None:
        super().__init__()
        self.frames = frames
        self.joint = Dense(frames.num_features + vector_size, frames.num_features, initialization=design.initialization)
        self.rectify = Rectifier(frames.num_features, layer_norm=design.layer_norm)
        self.num_features = frames.num_features

    def forward(self, frames: Tensor | None, vector: Tensor | None, dtype: torch.dtype) -> Tensor:
        """See ``Torso``."""
        assert vector is not None
        features: Tensor = self.frames(frames, None, dtype)
        mixed: Tensor = self.rectify(self.joint(torch.cat([features.float(), vector], dim=-1)))
        return mixed


def with_vector(torso: Torso, spec: EnvSpec, design: LayerDesign) -> Torso:
    """Return a torso for frames, beside the observations' vector if they have one."""
    return BesideVector(torso, spec.vector_size, design) if spec.vector_size else torso


def build_torso(settings: TorsoSettings, spec: EnvSpec, design: LayerDesign = PLAIN) -> Torso:
    """Build the torso for observations of ``spec``.

    Raises:
        TorsoError: the torso does not fit the observations, or a user's own torso does not have the interface of `Torso`; one line.
    """
    if (objection := settings.objection(spec)) is not None:
        raise TorsoError(objection)
    torso: Torso = TORSOS.make(settings, spec, design)
    return torso
