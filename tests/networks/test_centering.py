"""What inputs are centred by: the average image and the running moments of vectors, against numpy's over everything seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from numpy.typing import NDArray
from torch import nn

from herd.config.run import NetworkSettings
from herd.contract.spaces import NO_FRAMES, EnvSpec, discrete
from herd.networks.centering import LARGEST_NORMALIZED, LARGEST_PIXEL, ROW_STRIDE, SLOWEST_RATE, AverageImage, RunningMoments
from herd.networks.layers import PixelConvolution
from herd.run.tensors import decode_weights, encode_weights
from herd.training.parallel import OneShard
from tests.training.small_runs import STEP, batch_of, buffer_of, run_of, trainer_of, unrolls_of

WIDE = EnvSpec(("task",), NO_FRAMES, 1, discrete(2), 1, 0, vector_size=3, vector_is_bounded=False)
NARROW = replace(WIDE, vector_is_bounded=True)
CARTPOLE = {"env": {"suite": "gymnasium", "tasks": ["CartPole-v1"]}, "network": {"torso": "mlp"}}
ROWS, UNROLLS, HEIGHT, WIDTH, CHANNELS = 9, 3, 5, 4, 2


def _planes(seed: int, low: int = 0, high: int = 256) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(low, high, (ROWS, UNROLLS, HEIGHT, WIDTH, CHANNELS), dtype=np.uint8)


def _update_image(average: AverageImage, planes: NDArray[np.uint8], counts: NDArray[np.bool_] | None = None) -> None:
    counts = np.ones(planes.shape[:2], np.bool_) if counts is None else counts
    average.update(torch.from_numpy(planes), torch.from_numpy(counts), OneShard().all_reduce_sum)


def test_the_average_is_that_of_all_rows_that_count_with_newer_batches_weighted_more_later() -> None:
    average = AverageImage(CHANNELS, HEIGHT, WIDTH)
    seen: list[tuple[float, NDArray[np.float64]]] = []
    for number, start in enumerate([0, 1, 2, 20_000], 1):
        average.num_batches.fill_(start)
        planes = _planes(number, 40 * number, 60 * number)
        counts = np.random.default_rng(number).random((ROWS, UNROLLS)) < 0.6
        planes[~counts] = 0  # as rows that belong to no game are
        _update_image(average, planes, counts)
        rows = planes[::ROW_STRIDE][counts[::ROW_STRIDE]].transpose(0, 3, 1, 2).astype(np.float64)
        rate = SLOWEST_RATE if start == 20_000 else 1.0 / number
        seen = [*((weight * (1 - rate), old) for weight, old in seen), (rate, rows)]
        mean = sum(weight * old.mean(axis=0) for weight, old in seen)
        variance = sum(weight * ((old - mean) ** 2).mean(axis=0) for weight, old in seen)
        np.testing.assert_allclose(average.mean.double(), mean, rtol=1e-5)
        np.testing.assert_allclose(average.deviation.double(), variance**0.5, rtol=1e-5)
    _update_image(average, _planes(9), np.zeros((ROWS, UNROLLS), np.bool_))
    np.testing.assert_allclose(average.mean.double(), mean, rtol=1e-5)
    assert int(average.num_batches) == 20_001


def test_a_pixel_that_never_changed_is_limited_when_it_does() -> None:
    average = AverageImage(CHANNELS, HEIGHT, WIDTH)
    planes = np.full((ROWS, UNROLLS, HEIGHT, WIDTH, CHANNELS), 87, np.uint8)
    planes[:, 0, 1, 2, 0] = 187
    _update_image(average, planes)
    images = torch.full((5, CHANNELS, HEIGHT, WIDTH), 87, dtype=torch.uint8)
    images[1:4, 1, 0, 0] = torch.tensor([89, 93, 0])
    images[4, 0, 1, 2] = 187
    seen = average.normalised(images, torch.float32)
    assert float(average.deviation[1].max()) == float(average.deviation.min()) == 1.0
    # A deviation is at least one unit, and a value at most five of them.
    assert seen[:4, 1, 0, 0].tolist() == [0.0, 2.0, LARGEST_PIXEL, -LARGEST_PIXEL]
    assert float(seen[4, 0, 1, 2]) == pytest.approx((187 - round(87 + 100 / 3)) / (100 * 2**0.5 / 3), rel=1e-5)
    assert not seen[0, 1].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_first_layer_gets_standardised_pixels(dtype: torch.dtype) -> None:
    layer = PixelConvolution(3 * CHANNELS, 8, 3, padding=1)
    layer.centre("mean", (CHANNELS, HEIGHT, WIDTH))
    assert layer.bias is not None
    _update_image(layer.average, _planes(0))
    frames = torch.from_numpy(_planes(1)).permute(0, 1, 4, 2, 3).reshape(-1, 3, CHANNELS, HEIGHT, WIDTH).flatten(1, 2)
    whole, deviation = layer.average.mean.double().round(), layer.average.deviation.double()
    seen = (frames.double() - whole.repeat(3, 1, 1)) / deviation.repeat(3, 1, 1)
    expected = F.conv2d(seen, layer.weight.double(), layer.bias.double(), padding=1)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(layer.average.normalised(frames, dtype).double(), seen, rtol=tolerance / 3, atol=0)
    torch.testing.assert_close(layer.convolve_pixels(frames, dtype).double(), expected, rtol=tolerance, atol=tolerance)
    layer.average.deviation.fill_(64.0)  # a power of two: only the difference could be rounded
    assert torch.equal(layer.average.normalised(frames, dtype).double(), (frames.double() - whole.repeat(3, 1, 1)) / 64)


@pytest.mark.parametrize("change", ["mean", "deviation"])
def test_inference_uses_the_buffers_of_the_newest_weights(change: str) -> None:
    average = AverageImage(CHANNELS, HEIGHT, WIDTH)
    _update_image(average, _planes(0))
    frames = torch.from_numpy(_planes(1)[0]).permute(0, 3, 1, 2).repeat(1, 3, 1, 1)

    def check() -> None:
        for stack, dtype in ((3, torch.float32), (3, torch.bfloat16), (2, torch.bfloat16), (3, torch.float32)):
            pixels = frames[:, : stack * CHANNELS]
            expected = average.normalised(pixels, dtype)  # with gradients enabled nothing is kept
            with torch.no_grad():
                for _ in range(2):
                    assert torch.equal(average.normalised(pixels, dtype), expected)

    check()
    before = average.normalised(frames, torch.float32)
    average.get_buffer(change)[1, 2, 3] += 1  # as newer weights are loaded: in place
    assert not torch.equal(average.normalised(frames, torch.float32), before)
    check()


def test_only_changes_from_the_average_image_activate_filters() -> None:
    layer = PixelConvolution(4, 16, 8, stride=4)
    layer.centre("mean", (1, 84, 84))
    background = torch.randint(0, 256, (84, 84), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    planes = background.expand(40, 3, 84, 84).clone().unsqueeze(-1)
    planes[7, 1, 30, 40] = 255  # a ball that appears once
    _update_image(layer.average, planes.numpy())
    still = background.expand(2, 4, 84, 84)
    assert not layer.convolve_pixels(still, torch.float32).any()
    moved = still.clone()
    moved[0, 3, 50:52, 20] ^= 0xFF
    response = layer.convolve_pixels(moved, torch.float32).detach()
    assert float(response[0].abs().max()) > 0.1
    assert not response[1].any()


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_planes_before_the_first_frame_of_a_game_count_as_the_average_image(channels: int, compiles: bool) -> None:
    stack, size = 4, 20
    layer = PixelConvolution(stack * channels, 8, 3)
    layer.centre("mean", (channels, size, size))
    background = torch.randint(100, 256, (channels, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    layer.average.mean.copy_(background)
    frames = background.repeat(6, stack, 1, 1)
    for row in (0, 1, 2):
        frames[row, : (stack - 1 - row) * channels] = 0  # the first rows of a game
    frames[4, :channels] = 0
    frames[4, channels - 1, -1, -2] = 1  # a dark frame is one
    frames[5, -channels:] = 0  # and so is the newest plane, even if black
    layer.average.deviation.fill_(128.0)
    expected = (frames.float() - layer.average.mean.repeat(stack, 1, 1)) / 128
    for row in (0, 1, 2):
        expected[row] = 0
    with torch.no_grad():
        if compiles:
            exported = torch.export.export(_Normalised(layer.average), (frames,))
            seen = exported.module()(frames)
        else:
            seen = layer.average.normalised(frames, torch.float32)
    torch.testing.assert_close(seen, expected, rtol=0, atol=0)


class _Normalised(nn.Module):
    def __init__(self, average: AverageImage) -> None:
        super().__init__()
        self.average = average

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.average.normalised(pixels, torch.float32)


def test_each_batch_updates_the_average_once_and_weights_include_it() -> None:
    run = run_of(
        env={"suite": "atari", "tasks": ["breakout"]},
        network={"torso": "shallow", "core": "none", "input_centering": "mean"},
        learner={"batch_size": 2, "sample_reuse": 2},
    )
    trainer = trainer_of(run)
    buffer = batch_of(run)
    batch = trainer.to_device(buffer)
    trainer.begin(batch, 0)
    for _ in range(2):
        trainer.finish(trainer.launch(batch), STEP)
    weights = trainer.weights()
    assert int(weights["torso.pixels.average.num_batches"]) == 1
    counts = buffer.arrays["row_valid"][:, ::ROW_STRIDE]
    assert not counts.all()
    expected = buffer.arrays["frames"][:, :-1:ROW_STRIDE][counts].astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(weights["torso.pixels.average.mean"].double(), expected.transpose(2, 0, 1), rtol=1e-5)
    again = trainer_of(run)
    again.parts["model"].load(
        {name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    )
    torch.testing.assert_close(again.weights()["torso.pixels.average.mean"], weights["torso.pixels.average.mean"], rtol=1e-2, atol=0.0)


def _update(moments: RunningMoments, vectors: torch.Tensor, *, num_empty: int = 0, is_taken: bool = True) -> None:
    """Update with ``vectors`` [R, B, D], of which the first rows may be empty."""
    counts = torch.ones(vectors.shape[:2], dtype=torch.bool)
    counts[:num_empty] = False
    moments.update(vectors, counts & is_taken, OneShard().all_reduce_sum)


def test_after_batches_of_equal_size_they_are_those_of_all_numbers() -> None:
    random = np.random.default_rng(3)
    moments = RunningMoments(3)
    batches = [random.normal([1e6, 0.0, -3.0], [2.0, 1e-3, 70.0], (5, 4, 3)) + drift for drift in (0.0, 1.0, 9.0, -4.0)]
    for batch in batches:
        _update(moments, torch.from_numpy(batch))
    seen = np.concatenate(batches).reshape(-1, 3)
    np.testing.assert_allclose(moments.mean, seen.mean(0), rtol=1e-9)
    np.testing.assert_allclose(moments.deviation, seen.std(0), rtol=1e-6)
    some = seen[:7].astype(np.float32)
    np.testing.assert_allclose(moments(torch.from_numpy(some)), (some - seen.mean(0)) / seen.std(0), rtol=1e-4, atol=1e-6)
    # Late in a run the newest batch has a small, constant weight.
    moments.num_batches.fill_(10**6)
    _update(moments, torch.zeros(1, 1, 3, dtype=torch.float64))
    np.testing.assert_allclose(moments.mean, (1 - SLOWEST_RATE) * seen.mean(0), rtol=1e-6)


def test_rows_of_no_game_do_not_count() -> None:
    vectors = 1e6 + torch.randn(21, 50, 1, generator=torch.Generator().manual_seed(0))
    vectors[:10] = 0.0
    moments = RunningMoments(1)
    _update(moments, vectors, num_empty=10)
    assert float(moments.deviation) == pytest.approx(1.0, abs=0.1)
    before = {name: tensor.clone() for name, tensor in moments.state_dict().items()}
    _update(moments, vectors, num_empty=21)
    _update(moments, vectors + 1.0, is_taken=False)
    torch.testing.assert_close(moments.state_dict(), before, rtol=0, atol=0)


def test_a_number_that_never_changed_is_limited_when_it_does() -> None:
    moments = RunningMoments(2)
    _update(moments, torch.tensor([[[5.0, 1.0], [5.0, -1.0]]]))
    assert moments(torch.tensor([[5.0, 1.0], [6.0, -1.0], [4.0, 0.0]])).tolist() == [
        [0.0, 1.0],
        [LARGEST_NORMALIZED, -1.0],
        [-LARGEST_NORMALIZED, 0.0],
    ]


@pytest.mark.parametrize(
    ("values", "spec", "normalizes"),
    [
        ({"torso": "mlp"}, WIDE, True),
        ({"torso": "mlp", "vector_normalization": "none"}, WIDE, False),
        ({"torso": "mlp"}, NARROW, False),
        (
            {"torso": "mlp", "vector_normalization": "running"},
            EnvSpec(("t",), NO_FRAMES, 1, discrete(2), 1, 0, vector_size=3),
            True,
        ),
        ({"vector_normalization": "running"}, EnvSpec(("t",), (84, 84, 1), 1, discrete(2), 1, 0), False),
        ({"torso": "mine:Torso"}, WIDE, False),
    ],
)
def test_wide_bounds_decide_unless_a_setting_does(values: dict[str, str], spec: EnvSpec, normalizes: bool) -> None:
    assert NetworkSettings.model_validate(values).normalizes_vector(spec) == normalizes


def test_new_rows_of_a_batch_update_them_once_after_its_last_use_and_weights_carry_them_unrounded() -> None:
    changes: dict[str, Any] = {
        "network": {"torso": "mlp", "core": {"kind": "lstm", "size": 8}},
        "algorithm": {"unroll_length": 6, "burn_in": 2},
        "learner": {"batch_size": 3, "sample_reuse": 2},
    }
    run = run_of(**(CARTPOLE | changes))
    trainer = trainer_of(run)
    assert trainer.agent.moments is not None
    arrays = unrolls_of(run)
    valid = arrays["row_valid"]
    arrays["observations"][...] = np.random.default_rng(1).normal(1e6, 1.0, arrays["observations"].shape)
    arrays["observations"][:, :-1][~valid] = 0.0
    batch = trainer.to_device(buffer_of(run, arrays))
    trainer.begin(batch, 0)
    for num_before in range(2):
        assert int(trainer.agent.moments.num_batches) == 0, num_before
        trainer.finish(trainer.launch(batch), STEP)
    rows = arrays["observations"][:, 2:-1][valid[:, 2:]].astype(np.float64)
    weights = decode_weights(encode_weights(trainer.weights(), torch.bfloat16))
    assert int(weights["moments.num_batches"]) == 1
    np.testing.assert_allclose(weights["moments.mean"], rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(weights["moments.deviation"], rows.std(0), rtol=1e-9)
    again = trainer_of(run)
    again.parts["model"].load(weights)
    assert again.agent.moments is not None
    torch.testing.assert_close(again.agent.moments.mean, trainer.agent.moments.mean, rtol=0, atol=0)


def test_a_batch_with_a_gradient_that_is_not_finite_does_not_update_them() -> None:
    run = run_of(**CARTPOLE)
    trainer = trainer_of(run)
    arrays = unrolls_of(run)
    arrays["rewards"][...] = np.nan
    before = {name: tensor.clone() for name, tensor in trainer.weights().items()}
    assert not trainer(buffer_of(run, arrays), STEP).is_finite
    torch.testing.assert_close(trainer.weights(), before, rtol=0, atol=0)
