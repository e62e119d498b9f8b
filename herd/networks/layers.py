"""Layers that compute in the dtype of their input, and the moves between pixels, images and features.

Shapes: N images, C channels, H x W pixels. Images are channels_last in memory.

A layer casts its own parameters on the way, so float32 masters train in bfloat16. Measured against this on a CPU: autocast,
weights cast once per update, and bfloat16 leaves with float32 gradient sums are all within 4 %; this is the simplest.
"""

from __future__ import annotations

import math
import sys

import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor, nn

from herd.networks.frame_stack import planes_to_words

PIXEL_SCALE = 1.0 / 255.0
"""uint8 to [0, 1]. Folded into the first layer's weights: 0..255 are exact in bfloat16 (8 significant bits), 1/255 of them are
not, and scaling 4,096 weights is cheaper than scaling 28,224 pixels an image."""

RELU_GAIN = math.sqrt(2.0)


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


class Deconvolution(nn.ConvTranspose2d):
    """Square ``nn.ConvTranspose2d`` that computes in the dtype of its input; orthogonal weights, zero bias."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, *, stride: int = 1, gain: float = 1.0) -> None:
        super().__init__(in_channels, out_channels, kernel, stride=stride)
        _initialise(self, gain)

    def forward(self, images: Tensor) -> Tensor:  # type: ignore[override]  # nn.ConvTranspose2d's output_size has no use here
        """[N, in_channels, H, W] -> [N, out_channels, (H - 1) * stride + kernel, (W - 1) * stride + kernel], same dtype."""
        weight, bias = _parameters_as(self, images.dtype)
        return F.conv_transpose2d(images, weight, bias, self.stride)


class Dense(nn.Linear):
    """``nn.Linear`` that computes in the dtype of its input; orthogonal weights, zero bias."""

    def __init__(self, in_features: int, out_features: int, *, gain: float = RELU_GAIN) -> None:
        super().__init__(in_features, out_features)
        _initialise(self, gain)

    def forward(self, features: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features], same dtype."""
        weight, bias = _parameters_as(self, features.dtype)
        return F.linear(features, weight, bias)


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


def _parameters_as(layer: nn.Conv2d | nn.ConvTranspose2d | nn.Linear, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weight and bias in ``dtype``; gradients flow back to the layer's own parameters in theirs."""
    assert layer.bias is not None
    return layer.weight.to(dtype), layer.bias.to(dtype)


def _initialise(layer: nn.Conv2d | nn.ConvTranspose2d | nn.Linear, gain: float) -> None:
    assert layer.bias is not None
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
