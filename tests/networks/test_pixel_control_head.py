"""The deconvolutional dueling head of pixel control."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from herd.components.auxiliary.pixel_control import PixelControlSettings
from herd.components.auxiliary.pixel_control.head import CHANNELS, PixelControlHead
from herd.contract.spaces import NO_FRAMES, EnvSpec, discrete
from tests.oracles.networks_layers import Array, Layer, deconvolution, relu

SHAPES = {(72, 96): (18, 24), (84, 84): (20, 20), (96, 72): (24, 18), (120, 160): (30, 40), (64, 64): (16, 16), (33, 44): (8, 10)}
"""Sizes in pixels, and the sizes of the scheme with cells of 4 pixels."""


def _spec(height: int, width: int) -> EnvSpec:
    return EnvSpec(("task",), (height, width, 3), 1, discrete(4), 4, 0)


def _arrays(layer: torch.nn.ConvTranspose2d | torch.nn.Linear) -> Layer:
    assert layer.bias is not None
    return layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()


@pytest.mark.parametrize(("pixels", "grid"), SHAPES.items())
def test_the_head_outputs_the_grid_of_each_image_size(pixels: tuple[int, int], grid: tuple[int, int]) -> None:
    settings = PixelControlSettings()
    assert settings.objection(_spec(*pixels)) is None
    assert settings.grid(_spec(*pixels)) == grid
    head = PixelControlHead(5, 4, grid)
    assert head(torch.randn(2, 3, 5)).shape == (2, 3, 4, *grid)


def test_values_agree_with_the_oracle() -> None:
    torch.manual_seed(3)
    head = PixelControlHead(6, 3, (8, 10))
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(std=0.3)
    features = torch.randn(2, 2, 6)
    weight, bias = _arrays(head.dense)
    hidden = relu(features.flatten(0, 1).double().numpy() @ weight.T + bias).reshape(4, 1, 2, CHANNELS)
    both = deconvolution(relu(deconvolution(hidden.transpose(0, 3, 1, 2), _arrays(head.hidden))), _arrays(head.dueling), stride=2)
    expected: Array = np.zeros((4, 3, 8, 10))
    for n, a, y, x in np.ndindex(expected.shape):
        expected[n, a, y, x] = both[n, 0, y, x] + both[n, 1 + a, y, x] - sum(both[n, 1 + k, y, x] for k in range(3)) / 3
    found = head(features)
    np.testing.assert_allclose(found.detach().flatten(0, 1).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "spec", "message"),
    [
        (
            {},
            EnvSpec(("task",), NO_FRAMES, 1, discrete(2), 1, 0, vector_size=4),
            "pixel_control needs pictures, but these observations are vectors",
        ),
        ({"cell_size": 11}, _spec(84, 84), "auxiliary.cell_size 11 needs frames of at least 88 x 88 pixels, not 84 x 84"),
    ],
)
def test_unsupported_observations_are_refused_in_one_line(settings: dict[str, int], spec: EnvSpec, message: str) -> None:
    objection = PixelControlSettings.model_validate(settings).objection(spec)
    assert objection is not None
    assert message in objection
    assert "\n" not in objection
