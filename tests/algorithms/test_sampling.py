"""The categorical policy: frequencies of drawn actions, log-probabilities, entropy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from herd.algorithms.sampling import entropy, log_prob, sample_actions
from tests.oracles.actor_critic import softmax

torch.set_num_threads(1)

# 18 actions, the rarest of probability about 0.002; not normalised.
LOGITS = torch.linspace(-2.0, 2.0, 18, dtype=torch.float32) + 3.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_actions_come_as_often_as_the_policy_says(dtype: torch.dtype) -> None:
    num_draws = 200_000
    logits = LOGITS.to(dtype)
    actions = sample_actions(logits.expand(num_draws, 18), torch.Generator().manual_seed(5))
    assert actions.dtype == torch.int64
    assert actions.shape == (num_draws,)
    expected = num_draws * softmax(logits.double().numpy())
    counts = np.bincount(actions.numpy(), minlength=18)
    # 17 degrees of freedom: 40.8 is exceeded once in a thousand seeds.
    assert ((counts - expected) ** 2 / expected).sum() < 40.8


def test_rows_are_drawn_independently_and_a_seed_repeats_them() -> None:
    logits = torch.zeros(4000, 2)
    one = sample_actions(logits, torch.Generator().manual_seed(1))
    assert torch.equal(one, sample_actions(logits, torch.Generator().manual_seed(1)))
    other = sample_actions(logits, torch.Generator().manual_seed(2))
    assert 0.45 < (one == other).double().mean() < 0.55
    assert 0.45 < (one[1:] == one[:-1]).double().mean() < 0.55


def test_an_impossible_action_is_never_drawn_and_logits_stay_as_they_are() -> None:
    logits = torch.tensor([[0.0, -math.inf, 1.0]]).repeat(5000, 1)
    copy = logits.clone()
    assert set(sample_actions(logits, torch.Generator().manual_seed(3)).tolist()) == {0, 2}
    assert torch.equal(logits, copy)


@given(st.lists(st.floats(-30.0, 30.0), min_size=2, max_size=6), st.floats(-50.0, 50.0))
def test_log_prob_and_entropy_agree_with_their_sums(logits: list[float], shift: float) -> None:
    probabilities = softmax(np.array(logits))
    rows = torch.tensor([logits] * len(logits), dtype=torch.float64) + shift
    np.testing.assert_allclose(log_prob(rows, torch.arange(len(logits))).numpy(), np.log(probabilities), rtol=1e-9, atol=1e-9)
    expected = -sum(p * math.log(p) for p in probabilities if p > 0.0)
    np.testing.assert_allclose(entropy(rows).numpy(), expected, rtol=1e-9, atol=1e-9)


def test_log_prob_picks_the_taken_action_of_each_row() -> None:
    logits = torch.tensor([[[0.0, 1.0], [2.0, -1.0]], [[0.5, 0.5], [-3.0, 3.0]]], dtype=torch.float64)
    actions = torch.tensor([[1, 0], [0, 0]])
    expected = [[math.log(softmax(logits[t, b].numpy())[actions[t, b]]) for b in range(2)] for t in range(2)]
    np.testing.assert_allclose(log_prob(logits, actions).numpy(), expected, rtol=1e-12)
