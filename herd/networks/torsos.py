"""From frames to features: the convolutional nets of IMPALA's Fig. 3, arXiv:1802.01561 (PopArt's Table 7, arXiv:1809.04474).

Shapes: N images (time folded into the batch), C = S * C channels of the stacked observation, H x W pixels, F features.

Every layer computes in the dtype of its input and casts its own parameters on the way, so float32 masters train in bfloat16
without autocast's per-operation bookkeeping. Activations are channels_last throughout; the last feature map is flattened in
(height, width, channel) order, which is then a view.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor, nn

from herd.networks.frame_stack import planes_to_words

if TYPE_CHECKING:
    from herd.config.contract import EnvSpec
    from herd.config.settings import NetworkSettings

PIXEL_SCALE = 1.0 / 255.0
"""uint8 to [0, 1]. Folded into the first layer's weights: 0..255 are exact in bfloat16 (8 significant bits), 1/255 of them are
not, and scaling 4,096 weights is cheaper than scaling 28,224 pixels an image."""

RELU_GAIN = math.sqrt(2.0)


class TorsoSizeError(ValueError):
    """The frames are too small for the torso's convolutions."""


class Convolution(nn.Conv2d):
    """Square ``nn.Conv2d`` that computes in the dtype of its input; orthogonal weights, zero bias."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, *, stride: int = 1, padding: int = 0, gain: float = 1.0) -> None:
        super().__init__(in_channels, out_channels, kernel, stride=stride, padding=padding)
        _initialise(self, gain)

    def forward(self, images: Tensor) -> Tensor:
        """[N, in_channels, H, W] -> [N, out_channels, H', W'], same dtype."""
        weight, bias = _parameters_as(self, images.dtype)
        return F.conv2d(images, weight, bias, self.stride, self.padding)


class PixelConvolution(Convolution):
    """First convolution: takes uint8 pixels and sees them divided by 255."""

    def convolve_pixels(self, frames: Tensor, dtype: torch.dtype) -> Tensor:
        """uint8 [N, C, H, W] in any memory format -> ``dtype`` [N, out_channels, H', W'], channels_last."""
        weight = (self.weight * PIXEL_SCALE).to(dtype)
        _, bias = _parameters_as(self, dtype)
        return F.conv2d(pixels_last(frames).to(dtype), weight, bias, self.stride, self.padding)


class Dense(nn.Linear):
    """``nn.Linear`` that computes in the dtype of its input; orthogonal weights, zero bias."""

    def __init__(self, in_features: int, out_features: int, *, gain: float = RELU_GAIN) -> None:
        super().__init__(in_features, out_features)
        _initialise(self, gain)

    def forward(self, features: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features], same dtype."""
        weight, bias = _parameters_as(self, features.dtype)
        return F.linear(features, weight, bias)


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


_GPU_MICRO_BATCH = 1024
_CPU_MICRO_BATCH = {"shallow": 8, "nature": 8, "deep": 4, "mlp": 1024}


def recommended_micro_batch(torso: str, device_type: str) -> int:
    """Unrolls of 20 steps per forward and backward pass that learn fastest; more than the batch means the whole batch.

    Raises:
        KeyError: an unknown torso.
    """
    on_cpu = _CPU_MICRO_BATCH[torso]
    return on_cpu if device_type == "cpu" else _GPU_MICRO_BATCH


def pixels_last(frames: Tensor) -> Tensor:
    """The same uint8 [N, C, H, W] values in channels_last memory."""
    if frames.is_contiguous(memory_format=torch.channels_last):
        return frames
    if frames.shape[1] == 4 and frames.device.type == "cpu" and sys.byteorder == "little":
        return planes_to_words(frames)
    return frames.contiguous(memory_format=torch.channels_last)


def flatten_images(images: Tensor) -> Tensor:
    """[N, C, H, W] -> [N, H * W * C]; a view of channels_last memory."""
    return images.permute(0, 2, 3, 1).flatten(1)


def halve(images: Tensor) -> Tensor:
    """Max-pool 3x3/2 with padding 1: [N, C, H, W] -> [N, C, ceil(H / 2), ceil(W / 2)]."""
    if images.requires_grad or images.device.type != "cpu":
        return F.max_pool2d(images, 3, stride=2, padding=1)
    # Without a gradient no index of the maximum is needed; two passes of element-wise maxima then take half the time.
    return _halve_axis(_halve_axis(images, 2), 3)


def _halve_axis(images: Tensor, axis: int) -> Tensor:
    """Maximum over positions 2i - 1, 2i and 2i + 1 of ``axis``, for every i."""
    along = images.movedim(axis, 0)
    centres, others = along[0::2], along[1::2]
    if len(centres) == len(others):
        maxima = torch.maximum(centres, others)
    else:
        maxima = centres.clone()
        torch.maximum(maxima[:-1], others, out=maxima[:-1])
    torch.maximum(maxima[1:], others[: len(maxima) - 1], out=maxima[1:])
    return maxima.movedim(0, axis)


def _parameters_as(layer: nn.Conv2d | nn.Linear, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weight and bias in ``dtype``; gradients flow back to the layer's own parameters in theirs."""
    assert layer.bias is not None
    return layer.weight.to(dtype), layer.bias.to(dtype)


def _initialise(layer: nn.Conv2d | nn.Linear, gain: float) -> None:
    assert layer.bias is not None
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
