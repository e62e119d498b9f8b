"""Fully connected layers over pixels and vectors.

Shapes: N rows, H x W pixels, D numbers of a vector, F features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from herd.components.torsos.api import Torso
from herd.networks.layers import PIXEL_SCALE, PLAIN, Dense, LayerDesign, Rectifier, flatten_images

if TYPE_CHECKING:
    from herd.components.torsos.mlp import MLPTorsoSettings
    from herd.contract.spaces import EnvSpec


class BoardTorso(Torso):
    """Two fully connected layers with ReLUs, for boards such as Catch, for vectors, and for both together."""

    def __init__(self, spec: EnvSpec, design: LayerDesign = PLAIN) -> None:
        super().__init__()
        height, width, _ = spec.frame_shape
        num_pixels, num_features = height * width * spec.observation_channels, 256
        self.first = Dense(num_pixels + spec.vector_size, num_features, initialization=design.initialization)
        self.rectify_first = Rectifier(num_features, layer_norm=design.layer_norm)
        self.second = Dense(num_features, num_features, initialization=design.initialization)
        self.rectify_second = Rectifier(num_features, layer_norm=design.layer_norm)
        self.num_features = num_features

    def forward(self, frames: Tensor | None, vector: Tensor | None, dtype: torch.dtype) -> Tensor:
        """See ``Torso``."""
        # A vector's numbers may need more digits than bfloat16 has, so they are rounded only after the first layer.
        inputs = [] if vector is None else [vector]
        if frames is not None:
            inputs.insert(0, flatten_images(frames).to(dtype if vector is None else vector.dtype) * PIXEL_SCALE)
        hidden = self.rectify_first(self.first(torch.cat(inputs, dim=-1) if len(inputs) > 1 else inputs[0])).to(dtype)
        features: Tensor = self.rectify_second(self.second(hidden))
        return features


def board_torso(settings: MLPTorsoSettings, spec: EnvSpec, design: LayerDesign) -> Torso:  # noqa: ARG001
    """Return the torso for observations of ``spec``."""
    return BoardTorso(spec, design)
