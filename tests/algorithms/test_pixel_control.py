"""Pixel control's reward, target and loss, checked against float64 loops and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from herd.algorithms.pixel_control import cell_returns, pixel_control_loss, pseudo_rewards
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
def test_a_cells_reward_is_the_mean_absolute_change_of_its_pixels(channels: int, height: int, width: int) -> None:
    inputs = _inputs(1, channels=channels, height=height, width=width)
    planes, reset = inputs["planes"], inputs["game_reset"]
    found = pseudo_rewards(torch.from_numpy(planes), torch.from_numpy(reset), grid=GRID, cell_size=CELL)
    expected = oracle.rewards(planes, reset, grid=GRID, cell=CELL)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    assert (expected[3, 0] == 0.0).all()
    assert (expected[2, 0] > 0.0).all()


def test_the_central_80_of_84_pixels_count_scaled_to_1() -> None:
    planes = torch.zeros(2, 1, 84, 84, 1, dtype=torch.uint8)
    planes[1, 0, 2:6, 2:6] = 255  # the first cell
    planes[1, 0, 81, 81] = 255  # the last pixel of the last cell
    planes[1, 0, :2] = planes[1, 0, 82:] = 255  # outside the grid
    found = pseudo_rewards(planes, torch.zeros(2, 1, dtype=torch.bool), grid=(20, 20), cell_size=4)[0, 0]
    assert found[0, 0] == 1.0
    assert found[19, 19] == 1.0 / 16.0
    assert found.sum() == 1.0 + 1.0 / 16.0
    # A decrease counts as much as an increase.
    assert torch.equal(pseudo_rewards(planes.flip(0), torch.zeros(2, 1, dtype=torch.bool), grid=(20, 20), cell_size=4)[0, 0], found)


def test_returns_bootstrap_at_truncations_and_the_end_of_the_unroll() -> None:
    inputs = _inputs(2)
    reward = np.random.default_rng(3).random((T, B, *GRID))
    expected = oracle.returns(reward, inputs["action_values"], inputs["terminated"], inputs["counts"], discount=DISCOUNT)
    values, terminated, counts = (torch.from_numpy(inputs[name]) for name in ("action_values", "terminated", "counts"))
    found = cell_returns(torch.from_numpy(reward), values.amax(dim=2), terminated, counts, discount=DISCOUNT)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    # One cell worked out by hand.
    best = inputs["action_values"].max(axis=2)[:, :, 0, 0]
    cell = reward[:, :, 0, 0]
    assert found[1, 0, 0, 0].item() == pytest.approx(cell[1, 0] + 0.9 * cell[2, 0])  # nothing is added after the termination
    # ends with the final picture's value
    assert found[1, 1, 0, 0].item() == pytest.approx(cell[1, 1] + 0.9 * cell[2, 1] + 0.81 * best[3, 1])
    assert found[4, 2, 0, 0].item() == pytest.approx(cell[4, 2])
    assert found[5, 2, 0, 0].item() == pytest.approx(cell[5, 2] + 0.9 * cell[6, 2] + 0.81 * best[7, 2])


@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradient_agree_with_the_oracle(seed: int) -> None:
    inputs = _inputs(seed)
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


def test_uncounted_rows_enter_the_loss_only_as_bootstrap() -> None:
    inputs = _inputs(4)
    before = pixel_control_loss(**_tensors(inputs), cell_size=CELL, discount=DISCOUNT).loss
    inputs["actions"][~inputs["counts"]] = 0
    # in the first picture of a game the difference to the previous picture is masked, the difference to the next one is not
    inputs["planes"][4, 0] = 7
    inputs["planes"][5, 0] = 7
    changed = inputs | {"counts": inputs["counts"].copy()}
    changed["counts"][4:6, 0] = False
    assert pixel_control_loss(**_tensors(inputs), cell_size=CELL, discount=DISCOUNT).loss != before
    one = pixel_control_loss(**_tensors(changed), cell_size=CELL, discount=DISCOUNT).loss
    changed["planes"][4, 0] = 200
    assert pixel_control_loss(**_tensors(changed), cell_size=CELL, discount=DISCOUNT).loss == one


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
