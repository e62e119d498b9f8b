"""The categorical policy: frequencies of drawn actions, log-probabilities, entropy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from herd.algorithms.sampling import entropy, log_prob, sample_actions, tempered
from tests.oracles.actor_critic import softmax

torch.set_num_threads(1)

# 18 unnormalised logits; the rarest action has a probability of about 0.002.
LOGITS = torch.linspace(-2.0, 2.0, 18, dtype=torch.float32) + 3.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_actions_are_drawn_with_the_policys_probabilities(dtype: torch.dtype) -> None:
    num_draws = 200_000
    logits = LOGITS.to(dtype)
    actions = sample_actions(logits.expand(num_draws, 18), torch.Generator().manual_seed(5))
    assert actions.dtype == torch.int64
    assert actions.shape == (num_draws,)
    expected = num_draws * softmax(logits.double().numpy())
    counts = np.bincount(actions.numpy(), minlength=18)
    # With 17 degrees of freedom, 40.8 is exceeded by one seed in a thousand.
    assert ((counts - expected) ** 2 / expected).sum() < 40.8


def _chi_square(actions: torch.Tensor, probabilities: np.ndarray) -> float:
    expected = len(actions) * probabilities
    counts = np.bincount(actions.numpy(), minlength=len(expected))
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_row_is_drawn_at_its_own_temperature(dtype: torch.dtype) -> None:
    inverse_temperatures = (0.0, 0.3, 1.0, 7.0, 50.0)
    num_draws = 60_000
    # The logits are close together, as advantages are: at 1/tau = 50 the rarest of the 6 actions still has probability 0.004, and a product
    # with 8 bits would not distinguish neighbours.
    logits = (torch.linspace(0.0, 0.1, 6) + 1.0).to(dtype)
    rows = torch.tensor(inverse_temperatures).repeat(num_draws)
    actions = sample_actions(logits.expand(len(rows), 6), torch.Generator().manual_seed(6), rows)
    assert actions.shape == (len(rows),)
    for e, inverse_temperature in enumerate(inverse_temperatures):
        probabilities = softmax(logits.double().numpy() * inverse_temperature)
        # With 5 degrees of freedom, 20.5 is exceeded by one seed in a thousand.
        assert _chi_square(actions[e :: len(inverse_temperatures)], probabilities) < 20.5, inverse_temperature


def test_inverse_temperature_0_is_uniform_and_50_takes_the_best() -> None:
    logits = torch.tensor([[-3e4, 0.0, 3e4, 7.0]]).repeat(20_000, 1)
    uniform = sample_actions(logits, torch.Generator().manual_seed(7), torch.zeros(20_000))
    # With 3 degrees of freedom, 16.3 is exceeded by one seed in a thousand.
    assert _chi_square(uniform, np.full(4, 0.25)) < 16.3
    assert torch.equal(tempered(logits, torch.zeros(20_000)).softmax(-1), torch.full((20_000, 4), 0.25))
    assert (sample_actions(logits, torch.Generator().manual_seed(7), torch.full((20_000,), 50.0)) == 2).all()


def test_temperature_1_gives_the_same_draws_as_none() -> None:
    logits = LOGITS.repeat(500, 1)
    for dtype in (torch.float32, torch.bfloat16):
        plain = sample_actions(logits.to(dtype), torch.Generator().manual_seed(8))
        assert torch.equal(plain, sample_actions(logits.to(dtype), torch.Generator().manual_seed(8), torch.ones(500)))


def test_temperatures_multiply_at_least_in_float32_with_gradients() -> None:
    logits = torch.tensor([[1.0, 1.0078125], [-2.0, 3.0]], dtype=torch.bfloat16, requires_grad=True)
    product = tempered(logits, torch.tensor([50.0, 0.25]))
    assert product.dtype == torch.float32
    assert product.tolist() == [[50.0, 50.390625], [-0.5, 0.75]]  # 50.25 and 50.5 are neighbours in bfloat16
    product.sum().backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[50.0, 50.0], [0.25, 0.25]]
    assert tempered(logits.double(), torch.tensor([1.0, 1.0])).dtype == torch.float64


def test_rows_are_drawn_independently_and_a_seed_repeats_them() -> None:
    logits = torch.zeros(4000, 2)
    one = sample_actions(logits, torch.Generator().manual_seed(1))
    assert torch.equal(one, sample_actions(logits, torch.Generator().manual_seed(1)))
    other = sample_actions(logits, torch.Generator().manual_seed(2))
    assert 0.45 < (one == other).double().mean() < 0.55
    assert 0.45 < (one[1:] == one[:-1]).double().mean() < 0.55


def test_an_impossible_action_is_never_drawn() -> None:
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
