"""Torsos against float64 loops over every output number, and against the sizes that the papers print."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor, nn

from herd.config.contract import EnvSpec
from herd.config.settings import NetworkSettings
from herd.networks.torsos import (
    BoardTorso,
    DeepTorso,
    ResidualBlock,
    StridedTorso,
    Torso,
    TorsoSizeError,
    build_torso,
    recommended_micro_batch,
)
from tests.oracles import networks_layers as oracle

torch.set_num_threads(1)
TorsoName = Literal["shallow", "nature", "deep", "mlp"]


def _torso(name: TorsoName, height: int, width: int, channels: int = 1, stack: int = 4, **network: int) -> Torso:
    spec = EnvSpec(("task",), (height, width, channels), stack, 4, 4, 0)
    torch.manual_seed(7)
    torso = build_torso(spec, NetworkSettings(torso=name, **network))
    for parameter in torso.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, std=0.2)  # zero biases would hide a forgotten one
    return torso


def _frames(count: int, channels: int, height: int, width: int) -> Tensor:
    return torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


def _layer(module: Tensor | nn.Module) -> oracle.Layer:
    assert isinstance(module, nn.Conv2d | nn.Linear)
    assert module.bias is not None
    return module.weight.detach().double().numpy(), module.bias.detach().double().numpy()


def _expected(torso: Torso, frames: Tensor) -> np.ndarray:
    if isinstance(torso, StridedTorso):
        layers = [(_layer(c), c.stride[0]) for c in (torso.pixels, *torso.convolutions)]
        return oracle.strided_torso(frames.numpy(), layers, _layer(torso.dense))
    if isinstance(torso, DeepTorso):
        sections = []
        for convolution, blocks in zip((torso.pixels, *torso.convolutions), torso.blocks, strict=True):
            assert isinstance(blocks, nn.Sequential)
            sections.append((_layer(convolution), [(_layer(block.first), _layer(block.second)) for block in blocks]))
        return oracle.deep_torso(frames.numpy(), sections, _layer(torso.dense))
    assert isinstance(torso, BoardTorso)
    hidden = oracle.relu(oracle.dense(frames.numpy() / 255.0, _layer(torso.first)))
    return oracle.relu(oracle.dense(hidden[:, :, None, None], _layer(torso.second)))


@pytest.mark.parametrize(
    ("name", "height", "width", "channels", "stack"),
    [
        ("shallow", 24, 28, 1, 4),
        ("shallow", 20, 24, 3, 1),
        ("nature", 36, 40, 1, 4),
        ("deep", 9, 12, 1, 4),
        ("deep", 7, 10, 3, 1),
        ("mlp", 6, 5, 1, 2),
    ],
)
@pytest.mark.parametrize("with_gradient", [False, True])
def test_features_match_the_definition(name: TorsoName, height: int, width: int, channels: int, stack: int, with_gradient: bool) -> None:
    torso, frames = _torso(name, height, width, channels, stack), _frames(2, channels * stack, height, width)
    with torch.set_grad_enabled(with_gradient):
        features = torso(frames, torch.float32)
    expected = _expected(torso, frames)
    assert (expected > 0).mean() > 0.1
    np.testing.assert_allclose(features.detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_gradients_of_every_parameter_are_the_definitions_slopes() -> None:
    torso, frames = _torso("deep", 5, 6), _frames(1, 4, 5, 6)
    torso(frames, torch.float32).square().sum().backward()
    for name, parameter in torso.named_parameters():
        assert parameter.grad is not None, name
        where = np.unravel_index(int(parameter.grad.abs().argmax()), parameter.shape)
        start, step, totals = float(parameter.detach()[where]), 1e-3, []
        for value in (start + step, start - step, start):
            with torch.no_grad():
                parameter[where] = value
            totals.append(float(np.square(_expected(torso, frames)).sum()))
        # 2 %: the step may cross a ReLU's or a maximum's edge.
        assert (totals[0] - totals[1]) / (2 * step) == pytest.approx(float(parameter.grad[where]), rel=2e-2), name


def test_a_residual_block_leaves_its_input_alone() -> None:
    block, images = ResidualBlock(4), torch.randn(1, 4, 3, 3)
    before = images.clone()
    block(images)
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", ["shallow", "nature", "deep"])
def test_bfloat16_stays_close_to_float32_and_trains_float32_parameters(name: TorsoName) -> None:
    torso, frames = _torso(name, 40, 44), _frames(4, 4, 40, 44)
    exact, rounded = torso(frames, torch.float32), torso(frames, torch.bfloat16)
    assert rounded.dtype == torch.bfloat16
    error = (rounded.float() - exact).norm() / exact.norm()
    assert 0 < error < 0.02  # 8 significant bits and a few layers; exactly 0 would mean float32 was used
    exact_gradients = torch.autograd.grad(exact.sum(), list(torso.parameters()))
    gradients = torch.autograd.grad(rounded.float().sum(), list(torso.parameters()))
    for gradient, exact_gradient in zip(gradients, exact_gradients, strict=True):
        assert gradient.dtype == torch.float32
        # Rounding flips a few ReLUs and maxima of the fifteen layers; the direction must survive.
        assert F.cosine_similarity(gradient.flatten(), exact_gradient.flatten(), dim=0) > 0.98


def test_shallow_has_the_layers_of_fig_3() -> None:
    torso = _torso("shallow", 84, 84)
    assert {name: tuple(p.shape) for name, p in torso.named_parameters() if p.dim() > 1} == {
        "pixels.weight": (16, 4, 8, 8),
        "convolutions.0.weight": (32, 16, 4, 4),
        "dense.weight": (256, 9 * 9 * 32),
    }
    assert sum(p.numel() for p in torso.parameters()) == 4_112 + 8_224 + 663_808


def test_deep_has_the_fifteen_convolutions_of_fig_3_and_popart_table_7() -> None:
    torso = _torso("deep", 84, 84)
    channels = [(m.in_channels, m.out_channels, m.kernel_size, m.stride) for m in torso.modules() if isinstance(m, nn.Conv2d)]
    section = [(4, 16), (16, 32), (32, 32), *4 * [(16, 16)], *8 * [(32, 32)]]
    assert channels == [(i, o, (3, 3), (1, 1)) for i, o in section]
    assert isinstance(torso, DeepTorso)
    assert tuple(torso.dense.weight.shape) == (256, 11 * 11 * 32)
    assert sum(p.numel() for p in torso.parameters()) == 97_744 + 991_488


def test_width_multiplies_every_convolution_and_only_those() -> None:
    torso = _torso("deep", 84, 84, width_multiplier=4)
    assert [m.out_channels for m in torso.modules() if isinstance(m, nn.Conv2d)] == [64, 128, 128, *4 * [64], *8 * [128]]
    assert torso.num_features == 256


@pytest.mark.parametrize(("name", "smallest"), [("shallow", 20), ("nature", 36)])
def test_frames_too_small_are_refused_by_name_and_size(name: TorsoName, smallest: int) -> None:
    _torso(name, smallest, smallest)
    with pytest.raises(TorsoSizeError, match=rf"{name} does not fit frames of {smallest - 1}x{smallest} pixels"):
        _torso(name, smallest - 1, smallest)


def test_a_cpu_learns_in_slices_and_a_gpu_in_whole_batches() -> None:
    assert recommended_micro_batch("deep", "cpu") < recommended_micro_batch("shallow", "cpu") < 32
    assert recommended_micro_batch("deep", "cuda") >= 256
    with pytest.raises(KeyError):
        recommended_micro_batch("wide", "cpu")
