"""The average image against sums in float64, and what the first layer sees of a still picture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from numpy.typing import NDArray

from herd.networks.centering import ROW_STRIDE, SLOWEST_RATE, AverageImage
from herd.networks.layers import PixelConvolution
from herd.training.parallel import OneShard
from tests.training.small_runs import STEP, batch_of, run_of, trainer_of

ROWS, UNROLLS, HEIGHT, WIDTH, CHANNELS = 9, 3, 5, 4, 2


def _planes(seed: int, low: int = 0, high: int = 256) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(low, high, (ROWS, UNROLLS, HEIGHT, WIDTH, CHANNELS), dtype=np.uint8)


def test_the_average_is_a_mean_at_first_and_exponential_later() -> None:
    average = AverageImage(CHANNELS, HEIGHT, WIDTH)
    mean, variance = np.zeros((CHANNELS, HEIGHT, WIDTH)), 0.0
    for number, start in enumerate([0, 1, 2, 20_000], 1):
        average.num_batches.fill_(start)
        planes = _planes(number, 40 * number, 60 * number)
        average.update(torch.from_numpy(planes), OneShard().all_reduce_sum)
        seen = planes[::ROW_STRIDE].reshape(-1, HEIGHT, WIDTH, CHANNELS).transpose(0, 3, 1, 2).astype(np.float64)
        rate = SLOWEST_RATE if start == 20_000 else 1.0 / number
        mean += rate * (seen.mean(axis=0) - mean)
        variance += rate * (((seen - mean) ** 2).mean() - variance)
        np.testing.assert_allclose(average.mean.double(), mean, rtol=1e-5)
        assert float(average.deviation) == pytest.approx(variance**0.5, rel=1e-5)
    assert int(average.num_batches) == 20_001


def test_a_constant_image_is_not_magnified() -> None:
    average = AverageImage(CHANNELS, HEIGHT, WIDTH)
    average.update(torch.full((ROWS, UNROLLS, HEIGHT, WIDTH, CHANNELS), 87, dtype=torch.uint8), OneShard().all_reduce_sum)
    assert float(average.deviation) == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_first_layer_gets_standardised_pixels(dtype: torch.dtype) -> None:
    layer = PixelConvolution(3 * CHANNELS, 8, 3, padding=1)
    layer.centre("mean", (CHANNELS, HEIGHT, WIDTH))
    assert layer.bias is not None
    planes = torch.from_numpy(_planes(0))
    layer.average.update(planes, OneShard().all_reduce_sum)
    frames = torch.from_numpy(_planes(1)).permute(0, 1, 4, 2, 3).reshape(-1, 3, CHANNELS, HEIGHT, WIDTH).flatten(1, 2)
    whole = layer.average.mean.double().round()
    seen = (frames.double() - torch.cat([whole, whole, whole])) / layer.average.deviation.double()
    expected = F.conv2d(seen, layer.weight.double(), layer.bias.double(), padding=1)
    exact = layer.average.centred(frames, dtype).double() / layer.average.deviation.double()
    assert torch.equal(exact, seen)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(layer.convolve_pixels(frames, dtype).double(), expected, rtol=tolerance, atol=tolerance)


def test_only_changes_from_the_average_image_activate_filters() -> None:
    layer = PixelConvolution(4, 16, 8, stride=4)
    layer.centre("mean", (1, 84, 84))
    background = torch.randint(0, 256, (84, 84), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    planes = background.expand(40, 3, 84, 84).clone().unsqueeze(-1)
    planes[7, 1, 30, 40] = 255  # a ball that appears once
    layer.average.update(planes, OneShard().all_reduce_sum)
    still = background.expand(2, 4, 84, 84)
    assert not layer.convolve_pixels(still, torch.float32).any()
    moved = still.clone()
    moved[0, 3, 50:52, 20] ^= 0xFF
    response = layer.convolve_pixels(moved, torch.float32).detach()
    assert float(response[0].abs().max()) > 0.1
    assert not response[1].any()


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
    expected = buffer.arrays["frames"][:, ::ROW_STRIDE].astype(np.float64).mean(axis=(0, 1))
    np.testing.assert_allclose(weights["torso.pixels.average.mean"].double(), expected.transpose(2, 0, 1), rtol=1e-5)
    again = trainer_of(run)
    again.parts["model"].load(
        {name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    )
    torch.testing.assert_close(again.weights()["torso.pixels.average.mean"], weights["torso.pixels.average.mean"], rtol=1e-2, atol=0.0)
