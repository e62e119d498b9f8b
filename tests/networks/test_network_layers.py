"""Single layers against PyTorch's plain formulas in float64, and pixel rearrangements that must change nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor

from herd.networks.layers import PixelConvolution, halve, pad_channels
from tests.oracles.networks_layers import max_pool

torch.set_num_threads(1)


def _frames(count: int, channels: int, height: int, width: int) -> Tensor:
    return torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


def test_pixel_convolution_equals_convolution_of_pixels_over_255() -> None:
    layer, frames = PixelConvolution(4, 3, 3, padding=1), _frames(2, 4, 5, 6)
    output = layer.convolve_pixels(frames, torch.float32)
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad(output, layer.weight, direction)
    weight = layer.weight.detach().double().requires_grad_()
    assert layer.bias is not None
    expected = F.conv2d(frames.double() / 255.0, weight, layer.bias.double(), padding=1)
    (expected_gradient,) = torch.autograd.grad(expected, weight, direction.double())
    torch.testing.assert_close(output.double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 4), (11, 11), (42, 21)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_halving_equals_tensorflows_max_pool(size: tuple[int, int], dtype: torch.dtype) -> None:
    images = (
        (torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(2)) - 3).to(dtype).contiguous(memory_format=torch.channels_last)
    )
    before = images.clone()
    with_gradient = halve(images.clone().requires_grad_()).detach()
    assert torch.equal(halve(images), with_gradient)
    np.testing.assert_array_equal(with_gradient.double(), max_pool(images.double().numpy()))
    assert torch.equal(images, before)


@pytest.mark.parametrize(("channels", "padded"), [(4, 8), (8, 8), (9, 16)])
def test_channels_of_zeros_change_no_convolution(channels: int, padded: int) -> None:
    images = torch.randn(2, channels, 6, 5, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(3, channels, 3, 3, dtype=torch.float64, requires_grad=True)
    wide = pad_channels(images)
    assert wide.shape[1] == padded
    assert wide.is_contiguous(memory_format=torch.channels_last)
    expected = torch.nn.functional.conv2d(images, weight, padding=1)
    found = torch.nn.functional.conv2d(wide, pad_channels(weight), padding=1)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(output.square().sum(), weight)[0] for output in (expected, found)]
    torch.testing.assert_close(gradients[1], gradients[0])
