"""From frames to features: the convolutional nets of IMPALA's Fig. 3, arXiv:1802.01561 (PopArt's Table 7, arXiv:1809.04474).

Shapes: N images (time folded into the batch), C = S * C channels of the stacked observation, H x W pixels, F features.

The last feature map is flattened in (height, width, channel) order: of channels_last memory that is a view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor, nn

from herd.networks.layers import PIXEL_SCALE, RELU_GAIN, Convolution, Dense, PixelConvolution, flatten_images, halve

if TYPE_CHECKING:
    from herd.config.contract import EnvSpec
    from herd.config.settings import NetworkSettings


class TorsoSizeError(ValueError):
    """The frames are too small for the torso's convolutions."""


class Torso(nn.Module):
    """Frames to features. ``num_features`` is F."""

    num_features: int

    def forward(self, frames: Tensor, dtype: torch.dtype) -> Tensor:
        """uint8 [N, C, H, W] in any memory format -> ``dtype`` [N, F], non-negative."""
        raise NotImplementedError


class StridedTorso(Torso):
    """Strided convolutions and one fully connected layer, each followed by a ReLU.

    ``layers`` gives (channels, kernel, stride) of every convolution.
    """

    def __init__(self, channels: int, height: int, width: int, layers: tuple[tuple[int, int, int], ...], num_features: int) -> None:
        super().__init__()
        for _, kernel, stride in layers:
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        if height < 1 or width < 1:
            raise TorsoSizeError(f"frames are too small for convolutions {layers}")
        inputs = (channels, *(out for out, _, _ in layers[:-1]))
        shapes = zip(inputs, layers, strict=True)
        first, *rest = shapes
        self.pixels = PixelConvolution(first[0], first[1][0], first[1][1], stride=first[1][2], gain=RELU_GAIN)
        self.convolutions = nn.ModuleList(Convolution(c, out, kernel, stride=stride, gain=RELU_GAIN) for c, (out, kernel, stride) in rest)
        self.dense = Dense(height * width * layers[-1][0], num_features)
        self.num_features = num_features

    def forward(self, frames: Tensor, dtype: torch.dtype) -> Tensor:
        """See ``Torso``."""
        images = F.relu_(self.pixels.convolve_pixels(frames, dtype))
        for convolution in self.convolutions:
            images = F.relu_(convolution(images))
        return F.relu_(self.dense(flatten_images(images)))


class ResidualBlock(nn.Module):
    """x + conv(ReLU(conv(ReLU(x)))), both 3x3/1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = Convolution(channels, channels, 3, padding=1)
        self.second = Convolution(channels, channels, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        """[N, channels, H, W] -> the same shape; ``images`` is left as it is."""
        # In place where the overwritten tensor is a convolution's output, which its backward pass does not read.
        inner = F.relu_(self.first(F.relu(images)))
        residual: Tensor = self.second(inner)
        return residual.add_(images)


class DeepTorso(Torso):
    """Fig. 3 right: three sections of convolution 3x3/1, max-pool 3x3/2 and two residual blocks; ReLU, fc 256, ReLU."""

    def __init__(self, channels: int, height: int, width: int, section_channels: tuple[int, ...], num_features: int) -> None:
        super().__init__()
        inputs = (channels, *section_channels[:-1])
        self.pixels = PixelConvolution(inputs[0], section_channels[0], 3, padding=1)
        self.convolutions = nn.ModuleList(
            Convolution(c, out, 3, padding=1) for c, out in zip(inputs[1:], section_channels[1:], strict=True)
        )
        self.blocks = nn.ModuleList(nn.Sequential(ResidualBlock(out), ResidualBlock(out)) for out in section_channels)
        for _ in section_channels:
            height, width = (height + 1) // 2, (width + 1) // 2
        self.dense = Dense(height * width * section_channels[-1], num_features)
        self.num_features = num_features

    def forward(self, frames: Tensor, dtype: torch.dtype) -> Tensor:
        """See ``Torso``."""
        images = self.blocks[0](halve(self.pixels.convolve_pixels(frames, dtype)))
        for convolution, blocks in zip(self.convolutions, self.blocks[1:], strict=True):
            images = blocks(halve(convolution(images)))
        return F.relu_(self.dense(flatten_images(F.relu_(images))))


class BoardTorso(Torso):
    """Two fully connected layers with ReLUs, for boards such as Catch."""

    def __init__(self, num_pixels: int, num_features: int) -> None:
        super().__init__()
        self.first = Dense(num_pixels, num_features)
        self.second = Dense(num_features, num_features)
        self.num_features = num_features

    def forward(self, frames: Tensor, dtype: torch.dtype) -> Tensor:
        """See ``Torso``."""
        pixels = flatten_images(frames).to(dtype) * PIXEL_SCALE
        return F.relu_(self.second(F.relu_(self.first(pixels))))


def build_torso(spec: EnvSpec, network: NetworkSettings) -> Torso:
    """The torso that ``network.torso`` names, for frames of ``spec``.

    Raises:
        TorsoSizeError: naming the torso and the frame size, when the convolutions leave no pixel.
    """
    height, width, _ = spec.frame_shape
    channels, widen = spec.observation_channels, network.width_multiplier
    try:
        match network.torso:
            case "shallow":
                return StridedTorso(channels, height, width, ((16 * widen, 8, 4), (32 * widen, 4, 2)), 256)
            case "nature":
                return StridedTorso(channels, height, width, ((32 * widen, 8, 4), (64 * widen, 4, 2), (64 * widen, 3, 1)), 512)
            case "deep":
                return DeepTorso(channels, height, width, (16 * widen, 32 * widen, 32 * widen), 256)
            case "mlp":
                return BoardTorso(height * width * channels, 256)
    except TorsoSizeError as error:
        raise TorsoSizeError(f"network.torso {network.torso} does not fit frames of {height}x{width} pixels: {error}") from None


# Core-microseconds per agent step (84x84x4, batch 32 x 20, restacking included) in slices of 4 / 8 / 16 / 32 unrolls, one thread
# of a shared AVX-512 CPU with bfloat16, MALLOC_MMAP_MAX_=0; minima of 5 to 30:
#   shallow bfloat16 92 / 92 / 92 / 90, with LSTM 183 / 151 / 135 / 129; nature 221 / 202 / 195 / 193; deep 1315 / 1333 / 1340 / 1334
#   shallow float32 147 / 146 / 144 / 142, without the MALLOC_ setting 151 / 155 / 196 / 210;          deep 2154 / 2248 / 2288 / 2257
# Small slices keep activations in cache, large ones spare the LSTM's steps. On two threads the deep net gains most from 4 or 8.
_CPU_MICRO_BATCH = {"shallow": 16, "nature": 16, "deep": 4, "mlp": 1024}
# Not measured: a GPU wants all the work at once.
_GPU_MICRO_BATCH = 1024


def recommended_micro_batch(torso: str, device_type: str) -> int:
    """Unrolls of 20 steps per forward and backward pass that learn fastest; more than the batch means the whole batch.

    Raises:
        KeyError: an unknown torso.
    """
    on_cpu = _CPU_MICRO_BATCH[torso]
    return on_cpu if device_type == "cpu" else _GPU_MICRO_BATCH
