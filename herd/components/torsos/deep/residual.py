"""The residual network of IMPALA's Fig. 3 right, arXiv:1802.01561 (PopArt's Table 7, arXiv:1809.04474).

Shapes: N rows, H x W pixels, F features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from herd.components.torsos.api import Torso, with_vector
from herd.components.torsos.deep import DeepTorsoSettings
from herd.networks.layers import PLAIN, Convolution, Dense, LayerDesign, PixelConvolution, Rectifier, flatten_images, halve

if TYPE_CHECKING:
    import torch

    from herd.contract.spaces import EnvSpec


class ResidualBlock(nn.Module):
    """x + conv(ReLU(conv(ReLU(x)))), both 3x3/1."""

    def __init__(self, channels: int, design: LayerDesign = PLAIN) -> None:
        super().__init__()
        # In place where the overwritten tensor is a convolution's output, which its backward pass does not read.
        self.rectify_first = Rectifier(channels, layer_norm=design.layer_norm, in_place=False)
        self.first = Convolution(channels, channels, 3, padding=1, initialization=design.initialization)
        self.rectify_second = Rectifier(channels, layer_norm=design.layer_norm)
        self.second = Convolution(channels, channels, 3, padding=1, initialization=design.initialization)

    def forward(self, images: Tensor) -> Tensor:
        """[N, channels, H, W] -> the same shape; ``images`` is not modified."""
        residual: Tensor = self.second(self.rectify_second(self.first(self.rectify_first(images))))
        return residual.add_(images)


class DeepTorso(Torso):
    """Fig. 3 right: three sections of convolution 3x3/1, max-pool 3x3/2 and two residual blocks; ReLU, fc 256, ReLU."""

    def __init__(self, spec: EnvSpec, design: LayerDesign = PLAIN) -> None:
        super().__init__()
        height, width, _ = spec.frame_shape
        num_features = DeepTorsoSettings.num_features
        section_channels = tuple(channels * design.width_multiplier for channels in (16, 32, 32))
        inputs = (spec.observation_channels, *section_channels[:-1])
        start = design.initialization
        self.pixels = PixelConvolution(inputs[0], section_channels[0], 3, padding=1, initialization=start)
        self.convolutions = nn.ModuleList(
            Convolution(c, out, 3, padding=1, initialization=start) for c, out in zip(inputs[1:], section_channels[1:], strict=True)
        )
        self.blocks = nn.ModuleList(nn.Sequential(ResidualBlock(out, design), ResidualBlock(out, design)) for out in section_channels)
        for _ in section_channels:
            height, width = (height + 1) // 2, (width + 1) // 2
        self.rectify_images = Rectifier(section_channels[-1], layer_norm=design.layer_norm)
        self.dense = Dense(height * width * section_channels[-1], num_features, initialization=start)
        self.rectify_features = Rectifier(num_features, layer_norm=design.layer_norm)
        self.num_features = num_features

    def forward(self, frames: Tensor | None, vector: Tensor | None, dtype: torch.dtype) -> Tensor:  # noqa: ARG002  see BesideVector
        """See ``Torso``."""
        assert frames is not None
        images = self.blocks[0](halve(self.pixels.convolve_pixels(frames, dtype)))
        for convolution, blocks in zip(self.convolutions, self.blocks[1:], strict=True):
            images = blocks(halve(convolution(images)))
        features: Tensor = self.rectify_features(self.dense(flatten_images(self.rectify_images(images))))
        return features


def deep_torso(settings: DeepTorsoSettings, spec: EnvSpec, design: LayerDesign) -> Torso:  # noqa: ARG001
    """Return the torso for observations of ``spec``."""
    torso = DeepTorso(spec, design)
    torso.pixels.centre(design.input_centering, spec.plane_shape)
    return with_vector(torso, spec, design)
