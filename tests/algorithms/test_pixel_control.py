"""Pixel control's reward, target and loss against float64 loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from herd.algorithms.pixel_control import pixel_control_loss
from tests.oracles import pixel_control as oracle

T, B, A, GRID, CELL = 7, 5, 3, (3, 2), 2
DISCOUNT = 0.9


def _inputs(seed: int = 0, *, channels: int = 3, height: int = 9, width: int = 6) -> dict[str, Any]:
    """Games that end by termination, by a time limit and by a lost life, including at the first and at the last step."""
    random = np.random.default_rng(seed)
    game_reset, counts = np.zeros((T + 1, B), bool), np.ones((T, B), bool)
    terminated = np.zeros((T, B), bool)
    terminated[2, 0], counts[3, 0], game_reset[4, 0] = True, False, True  # game over; the next row starts a game
    counts[3, 1], game_reset[4, 1] = False, True  # truncated: row 3 holds the final picture
    terminated[4, 2] = True  # a lost life: the game continues
    terminated[0, 3], counts[1, 3], game_reset[2, 3], terminated[T - 1, 3] = True, False, True, True
    counts[T - 1, 4], game_reset[T, 4] = False, True
    return {
        "planes": random.integers(0, 256, (T + 1, B, height, width, channels)).astype(np.uint8),
        "game_reset": game_reset,
        "actions": random.integers(0, A, (T, B)),
        "terminated": terminated,
        "counts": counts,
        "action_values": random.normal(size=(T + 1, B, A, *GRID)),
    }


def _tensors(inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in inputs.items()}


@pytest.mark.parametrize(("channels", "height", "width"), [(3, 9, 6), (1, 6, 4), (4, 7, 8)])
def test_loss_gradient_and_reward_agree_with_the_oracle(channels: int, height: int, width: int) -> None:
    inputs = _inputs(channels, channels=channels, height=height, width=width)
    reward = oracle.rewards(inputs["planes"], inputs["game_reset"], grid=GRID, cell=CELL)
    target = oracle.returns(reward, inputs["action_values"], inputs["terminated"], inputs["counts"], discount=DISCOUNT)
    expected, gradient = oracle.loss_and_gradient(target, inputs["action_values"], inputs["actions"], inputs["counts"])
    tensors = _tensors(inputs)
    values = tensors["action_values"].requires_grad_()
    terms = pixel_control_loss(**tensors, cell_size=CELL, discount=DISCOUNT)
    (found,) = torch.autograd.grad(terms.loss, values)
    assert terms.loss.item() == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(found.numpy(), gradient, rtol=1e-6, atol=1e-6)  # rewards are float32
    assert terms.reward.item() == pytest.approx(reward.mean(axis=(2, 3))[inputs["counts"]].sum(), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("action_values", torch.zeros(T + 1, B, A, 3), "action_values must be"),
        ("action_values", torch.zeros(T + 1, B, A, 9, 9), "do not fit"),
        ("planes", torch.zeros(T + 1, B, 9, 6, 3), "planes must be uint8"),
        ("game_reset", torch.zeros(T, B, dtype=torch.bool), "game_reset must be"),
        ("actions", torch.zeros(T + 1, B, dtype=torch.int64), "actions must be"),
        ("terminated", torch.zeros(T, B), "terminated must be bool"),
        ("counts", torch.ones(T, B, dtype=torch.uint8), "counts must be bool"),
    ],
)
def test_arguments_of_wrong_shape_or_dtype_are_refused(name: str, wrong: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pixel_control_loss(**(_tensors(_inputs()) | {name: wrong}), cell_size=CELL, discount=DISCOUNT)
