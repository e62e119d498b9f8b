"""Torsos agree with float64 loops over every output, and with the sizes printed in the papers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from pydantic import ValidationError
from torch import Tensor, nn

from herd.agent import design_of
from herd.components.torsos.api import BesideVector, Torso, TorsoError, build_torso
from herd.components.torsos.custom import CustomTorsoSettings
from herd.components.torsos.deep.residual import DeepTorso, ResidualBlock
from herd.components.torsos.mlp import MLPTorsoSettings
from herd.components.torsos.mlp.board import BoardTorso
from herd.components.torsos.shallow import ShallowTorsoSettings
from herd.components.torsos.shallow.strided import StridedTorso
from herd.config.run import NetworkSettings
from herd.contract.spaces import NO_FRAMES, EnvSpec, discrete
from herd.networks.layers import Rectifier
from tests.oracles import networks_layers as oracle

torch.set_num_threads(1)
TorsoName = Literal["shallow", "nature", "deep", "mlp"]


def _torso(name: TorsoName, height: int, width: int, channels: int = 1, stack: int = 4, **network: object) -> Torso:
    spec = EnvSpec(("task",), (height, width, channels), stack, discrete(4), 4, 0)
    torch.manual_seed(7)
    settings = NetworkSettings.model_validate({"torso": name, **network})
    torso = build_torso(settings.torso, spec, design_of(settings))
    for parameter in torso.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, std=0.2)  # zero biases would hide one that was forgotten
    return torso


def _frames(count: int, channels: int, height: int, width: int) -> Tensor:
    return torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


def _layer(module: Tensor | nn.Module) -> oracle.Layer:
    assert isinstance(module, nn.Conv2d | nn.Linear)
    assert module.bias is not None
    return module.weight.detach().double().numpy(), module.bias.detach().double().numpy()


def _norm(rectifier: Tensor | nn.Module) -> oracle.Norm:
    assert isinstance(rectifier, Rectifier)
    if rectifier.gain is None or rectifier.offset is None:
        return None
    return rectifier.gain.detach().double().numpy(), rectifier.offset.detach().double().numpy()


def _block(block: nn.Module) -> tuple[oracle.Layer, oracle.Layer, tuple[oracle.Norm, oracle.Norm]]:
    assert isinstance(block, ResidualBlock)
    return _layer(block.first), _layer(block.second), (_norm(block.rectify_first), _norm(block.rectify_second))


def _expected(torso: Torso, frames: Tensor, centering: str = "none") -> np.ndarray:
    if isinstance(torso, StridedTorso):
        layers = [(_layer(c), c.stride[0]) for c in (torso.pixels, *torso.convolutions)]
        return oracle.strided_torso(frames.numpy(), layers, _layer(torso.dense), [_norm(each) for each in torso.rectifiers], centering)
    if isinstance(torso, DeepTorso):
        sections = []
        for convolution, blocks in zip((torso.pixels, *torso.convolutions), torso.blocks, strict=True):
            assert isinstance(blocks, nn.Sequential)
            sections.append((_layer(convolution), [_block(block) for block in blocks]))
        norms = (_norm(torso.rectify_images), _norm(torso.rectify_features))
        return oracle.deep_torso(frames.numpy(), sections, _layer(torso.dense), norms, centering)
    assert isinstance(torso, BoardTorso)
    hidden = oracle.rectify(oracle.dense(frames.numpy() / 255.0, _layer(torso.first)), _norm(torso.rectify_first))
    return oracle.rectify(oracle.dense(hidden[:, :, None, None], _layer(torso.second)), _norm(torso.rectify_second))


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
def test_features_agree_with_the_oracle(name: TorsoName, height: int, width: int, channels: int, stack: int, with_gradient: bool) -> None:
    torso, frames = _torso(name, height, width, channels, stack), _frames(2, channels * stack, height, width)
    with torch.set_grad_enabled(with_gradient):
        features = torso(frames, None, torch.float32)
    expected = _expected(torso, frames)
    assert (expected > 0).mean() > 0.1
    np.testing.assert_allclose(features.detach().numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "centering", "layer_norm"),
    [
        ("mlp", "none", True),
        *((name, *design) for name in ("shallow", "deep") for design in (("none", True), ("filters", False), ("filters", True))),
    ],
)
def test_centred_inputs_and_layer_norms_agree_with_the_oracle(name: TorsoName, centering: str, layer_norm: bool) -> None:
    height, width = (9, 12) if name != "shallow" else (24, 28)
    torso, frames = _torso(name, height, width, input_centering=centering, layer_norm=layer_norm), _frames(2, 4, height, width)
    features = torso(frames, None, torch.float32)
    np.testing.assert_allclose(features.detach().numpy(), _expected(torso, frames, centering), rtol=1e-4, atol=2e-5)
    with torch.no_grad():
        np.testing.assert_array_equal(torso(frames, None, torch.float32), features.detach())


def test_truncated_normal_initialization_matches_sonnet() -> None:
    torso = _torso("shallow", 84, 84, initialization="truncated_normal")
    assert isinstance(torso, StridedTorso)
    for layer in (torso.pixels, *torso.convolutions, torso.dense):
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        deviation = layer.weight[0].numel() ** -0.5
        assert float(layer.weight.detach().abs().max()) <= 2 * deviation
        # A normal distribution truncated at two standard deviations has a standard deviation of 0.8796.
        assert float(layer.weight.detach().std()) == pytest.approx(0.8796 * deviation, rel=0.05)


def test_gradients_agree_with_slopes_of_the_oracle() -> None:
    torso, frames = _torso("deep", 5, 6, layer_norm=True, input_centering="filters"), _frames(1, 4, 5, 6)
    torso(frames, None, torch.float32).square().sum().backward()
    for name, parameter in torso.named_parameters():
        assert parameter.grad is not None, name
        where = np.unravel_index(int(parameter.grad.abs().argmax()), parameter.shape)
        start, step, totals = float(parameter.detach()[where]), 1e-4, []
        for value in (start + step, start - step, start):
            with torch.no_grad():
                parameter[where] = value
            totals.append(float(np.square(_expected(torso, frames, "filters")).sum()))
        # The tolerance is 2 % because the step may cross the edge of a ReLU or a maximum.
        assert (totals[0] - totals[1]) / (2 * step) == pytest.approx(float(parameter.grad[where]), rel=2e-2), name


@pytest.mark.parametrize("name", ["shallow", "nature", "deep"])
def test_bfloat16_stays_close_to_float32_and_trains_float32_parameters(name: TorsoName) -> None:
    torso, frames = _torso(name, 40, 44), _frames(4, 4, 40, 44)
    exact, rounded = torso(frames, None, torch.float32), torso(frames, None, torch.bfloat16)
    assert rounded.dtype == torch.bfloat16
    error = (rounded.float() - exact).norm() / exact.norm()
    assert 0 < error < 0.02  # 8 significant bits and a few layers; an error of exactly 0 would mean that float32 was used
    exact_gradients = torch.autograd.grad(exact.sum(), list(torso.parameters()))
    gradients = torch.autograd.grad(rounded.float().sum(), list(torso.parameters()))
    for gradient, exact_gradient in zip(gradients, exact_gradients, strict=True):
        assert gradient.dtype == torch.float32
        # Rounding flips a few ReLUs and maxima in the fifteen layers; the direction of the gradient must not change.
        assert F.cosine_similarity(gradient.flatten(), exact_gradient.flatten(), dim=0) > 0.98


SHALLOW = [(4, 16, 8), (16, 32, 4)]
DEEP = [(4, 16, 3), (16, 32, 3), (32, 32, 3), *4 * [(16, 16, 3)], *8 * [(32, 32, 3)]]


@pytest.mark.parametrize(
    ("name", "width", "convolutions", "pixels", "count"),
    [
        ("shallow", 1, SHALLOW, 9 * 9 * 32, 4_112 + 8_224 + 663_808),
        ("deep", 1, DEEP, 11 * 11 * 32, 97_744 + 991_488),
        ("deep", 4, [(i if i == 4 else 4 * i, 4 * o, 3) for i, o, _ in DEEP], 11 * 11 * 128, 1_552_192 + 3_965_184),
    ],
)
def test_layers_are_those_of_fig_3(name: TorsoName, width: int, convolutions: list[tuple[int, int, int]], pixels: int, count: int) -> None:
    torso = _torso(name, 84, 84, width_multiplier=width)
    assert isinstance(torso, StridedTorso | DeepTorso)
    found = [(m.in_channels, m.out_channels, m.kernel_size[0]) for m in torso.modules() if isinstance(m, nn.Conv2d)]
    assert found == convolutions
    assert tuple(torso.dense.weight.shape) == (256, pixels)
    assert sum(p.numel() for p in torso.parameters()) == count


@pytest.mark.parametrize(("name", "smallest"), [("shallow", 20), ("nature", 36)])
def test_frames_too_small_are_refused_by_name_and_size(name: TorsoName, smallest: int) -> None:
    _torso(name, smallest, smallest)
    with pytest.raises(TorsoError, match=rf"{name} does not fit frames of {smallest - 1}x{smallest} pixels"):
        _torso(name, smallest - 1, smallest)


@pytest.mark.parametrize("frame_shape", [NO_FRAMES, (4, 3, 2)])
def test_the_mlp_torso_reads_vectors_with_or_without_boards(frame_shape: tuple[int, int, int]) -> None:
    vector = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    torso = build_torso(MLPTorsoSettings(), EnvSpec(("task",), frame_shape, 1, discrete(4), 1, 0, vector_size=5))
    assert isinstance(torso, BoardTorso)
    frames = None if frame_shape == NO_FRAMES else _frames(3, 2, 4, 3)
    pixels = np.zeros((3, 0)) if frames is None else frames.permute(0, 2, 3, 1).flatten(1).double().numpy() / 255.0
    hidden = oracle.relu(oracle.dense(np.concatenate([pixels, vector.double().numpy()], axis=1)[:, :, None, None], _layer(torso.first)))
    expected = oracle.relu(oracle.dense(hidden[:, :, None, None], _layer(torso.second)))
    np.testing.assert_allclose(torso(frames, vector, torch.float32).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_vectors_keep_float32_precision_in_the_first_layer() -> None:
    torso = build_torso(MLPTorsoSettings(), EnvSpec(("task",), NO_FRAMES, 1, discrete(4), 1, 0, vector_size=1))
    near = torch.tensor([[1000.0], [1001.0]])  # the same number in bfloat16
    features = torso(None, near, torch.bfloat16)
    assert features.dtype == torch.bfloat16
    assert (features[0] != features[1]).any()


def test_a_vector_beside_an_image_is_joined_by_a_dense_layer() -> None:
    torso = build_torso(ShallowTorsoSettings(), EnvSpec(("task",), (24, 28, 1), 4, discrete(4), 4, 0, vector_size=5))
    assert isinstance(torso, BesideVector)
    frames, vector = _frames(3, 4, 24, 28), torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    seen = torso.frames(frames, None, torch.float32)
    together = torch.cat([seen, vector], dim=1).detach().double().numpy()
    expected = oracle.relu(oracle.dense(together[:, :, None, None], _layer(torso.joint)))
    np.testing.assert_allclose(torso(frames, vector, torch.float32).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    assert torso.num_features == 256


OWN = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.num_features = 7
        self.layer = nn.Linear(spec.vector_size + spec.observation_channels, 7)

    def forward(self, frames, vector, dtype):
        parts = [part for part in (vector, None if frames is None else frames.float().mean((2, 3))) if part is not None]
        return self.layer(torch.cat(parts, dim=1))

class Wide(Mine):
    def forward(self, frames, vector, dtype):
        return super().forward(frames, vector, dtype)[:, :3]

class Rounded(Mine):
    def forward(self, frames, vector, dtype):
        return self.layer(vector.to(dtype))

class Silent(nn.Module):
    def __init__(self, spec):
        super().__init__()

class Demanding(Mine):
    def __init__(self, spec, size):
        super().__init__(spec)
"""


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    name = f"torsos_{abs(hash(request.node.name))}"  # a module is imported only once
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    return name


@pytest.mark.parametrize(("frame_shape", "vector_size"), [(NO_FRAMES, 5), ((6, 5, 1), 0), ((6, 5, 1), 5)])
def test_a_custom_torso_gets_the_available_inputs(own_file: str, frame_shape: tuple[int, int, int], vector_size: int) -> None:
    spec = EnvSpec(("task",), frame_shape, 2, discrete(4), 1, 0, vector_size=vector_size)
    torso = build_torso(CustomTorsoSettings(code=f"{own_file}:Mine"), spec)
    assert torso.training
    frames = _frames(3, 2, 6, 5) if frame_shape != NO_FRAMES else None
    vector = torch.randn(3, vector_size) if vector_size else None
    features = torso(frames, vector, torch.float32)
    assert features.shape == (3, 7)
    assert len(features.unique(dim=0)) == 3


def test_a_custom_torso_must_normalise_by_itself() -> None:
    with pytest.raises(ValidationError, match="yours must do this itself"):
        NetworkSettings.model_validate({"torso": "mine:Torso", "layer_norm": True})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Wide", r"must return floats of shape \[N, num_features\] = \(2, 7\), not \(2, 3\)"),
        ("Rounded", r"fails on two rows in torch.bfloat16: RuntimeError: mat1 and mat2 must have the same dtype"),
        ("Silent", r"must be a torch.nn.Module with the attribute num_features"),
        ("Demanding", r"cannot be created from an EnvSpec: TypeError: .* missing 1 required positional argument: 'size'"),
        ("Absent", r"has no Absent"),
    ],
)
def test_an_invalid_custom_torso_is_refused_at_the_start(own_file: str, name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build_torso(CustomTorsoSettings(code=f"{own_file}:{name}"), EnvSpec(("task",), NO_FRAMES, 1, discrete(4), 1, 0, vector_size=5))


def test_gradients_stay_bounded_for_a_constant_image() -> None:
    """Here nothing varies between channels: normalising each position by itself would divide by the root of epsilon."""
    torso = _torso("shallow", 40, 44, input_centering="filters", layer_norm=True)
    assert isinstance(torso, StridedTorso)
    with torch.no_grad():
        assert torso.pixels.bias is not None
        torso.pixels.bias.zero_()
    frames = torch.full((2, 4, 40, 44), 87, dtype=torch.uint8)
    frames[:, :, 18:22, 18:22] = 236  # a ball
    torso(frames, None, torch.float32).sum().backward()
    assert torso.pixels.bias.grad is not None
    assert float(torso.pixels.bias.grad.norm()) < 1e3
