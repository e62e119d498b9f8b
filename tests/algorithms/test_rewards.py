"""Reward shaping at points worked out by hand, and properties of the shaping functions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from herd.algorithms.rewards import RewardShaping, shape_rewards

SHAPINGS: tuple[RewardShaping, ...] = ("clip", "soft_asymmetric", "soft_asymmetric_printed", "log_asymmetric", "none")
REWARDS = (-12.0, -1.0, -0.4, 0.0, 0.3, 1.0, 2.5, 30.0)


@pytest.mark.parametrize("reward", REWARDS)
def test_shaped_rewards_agree_with_the_formulas(reward: float) -> None:
    squeezed = math.tanh(reward / 5.0)
    expected: dict[RewardShaping, float] = {
        "clip": max(-1.0, min(1.0, reward)),
        "soft_asymmetric": (0.3 * squeezed if reward < 0 else squeezed) * 5.0,
        "soft_asymmetric_printed": 0.3 * min(math.tanh(reward), 0.0) + 5.0 * max(math.tanh(reward), 0.0),
        "log_asymmetric": math.log(abs(reward) + 1.0) * (2.0 if reward >= 0 else -1.0),
        "none": reward,
    }
    for shaping, value in expected.items():
        shaped = shape_rewards(torch.tensor([[reward]], dtype=torch.float64), shaping)
        assert shaped.item() == pytest.approx(value, rel=1e-14, abs=1e-15), shaping


def test_shaping_keeps_the_dtype() -> None:
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        for shaping in SHAPINGS:
            assert shape_rewards(torch.tensor([-2.0, 3.0], dtype=dtype), shaping).dtype == dtype


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=20))
def test_every_shaping_keeps_the_order_and_the_sign(rewards: list[float]) -> None:
    ordered = torch.tensor(sorted(rewards), dtype=torch.float64)
    for shaping in SHAPINGS:
        shaped = shape_rewards(ordered, shaping)
        assert (shaped.diff() >= 0).all()
        assert (shaped.sign() == ordered.sign()).all()
