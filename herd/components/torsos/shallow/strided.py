"""Strided convolutions: IMPALA's Fig. 3 left, arXiv:1802.01561, and DQN's network.

Shapes: N rows, H x W pixels, F features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from herd.components.torsos.api import Torso, with_vector
from herd.networks.layers import PLAIN, RELU_GAIN, Convolution, Dense, LayerDesign, PixelConvolution, Rectifier, flatten_images

if TYPE_CHECKING:
    import torch

    from herd.components.torsos.nature import NatureTorsoSettings
    from herd.components.torsos.shallow import ShallowTorsoSettings
    from herd.contract.spaces import EnvSpec


class StridedTorso(Torso):
    """Strided convolutions and one fully connected layer, each followed by a ReLU.

    ``settings`` gives (channels, kernel, stride) of every convolution.
    """

    def __init__(self, settings: ShallowTorsoSettings | NatureTorsoSettings, spec: EnvSpec, design: LayerDesign = PLAIN) -> None:
        super().__init__()
        height, width = settings.sizes(spec)
        layers = [(channels * design.width_multiplier, kernel, stride) for channels, kernel, stride in settings.strides]
        num_features, channels = settings.num_features, spec.observation_channels
        inputs = (channels, *(out for out, _, _ in layers[:-1]))
        shapes = zip(inputs, layers, strict=True)
        first, *rest = shapes
        start = design.initialization
        self.pixels = PixelConvolution(first[0], first[1][0], first[1][1], stride=first[1][2], gain=RELU_GAIN, initialization=start)
        self.convolutions = nn.ModuleList(
            Convolution(c, out, kernel, stride=stride, gain=RELU_GAIN, initialization=start) for c, (out, kernel, stride) in rest
        )
        self.dense = Dense(height * width * layers[-1][0], num_features, initialization=start)
        self.rectifiers = nn.ModuleList(
            Rectifier(out, layer_norm=design.layer_norm) for out in (*(out for out, _, _ in layers), num_features)
        )
        self.num_features = num_features

    def forward(self, frames: Tensor | None, vector: Tensor | None, dtype: torch.dtype) -> Tensor:  # noqa: ARG002  see BesideVector
        """See ``Torso``."""
        assert frames is not None
        first, *others, last = self.rectifiers
        images = first(self.pixels.convolve_pixels(frames, dtype))
        for convolution, rectify in zip(self.convolutions, others, strict=True):
            images = rectify(convolution(images))
        features: Tensor = last(self.dense(flatten_images(images)))
        return features


def strided_torso(settings: ShallowTorsoSettings | NatureTorsoSettings, spec: EnvSpec, design: LayerDesign) -> Torso:
    """Return the torso for observations of ``spec``."""
    torso = StridedTorso(settings, spec, design)
    torso.pixels.centre(design.input_centering, spec.plane_shape)
    return with_vector(torso, spec, design)
