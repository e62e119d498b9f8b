"""One categorical: frequencies of drawn actions; log-probabilities, entropy, divergence and gradients in float64; masks."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from herd.algorithms.distributions import AppliedCategorical, tempered
from herd.components.actions.categorical import CategoricalSettings
from herd.components.actions.categorical.categorical import Categorical
from herd.contract.spaces import discrete
from tests.oracles.actor_critic import softmax

torch.set_num_threads(1)


def draw(logits: torch.Tensor, seed: int, inverse_temperature: torch.Tensor | None = None) -> torch.Tensor:
    applied = AppliedCategorical(logits if inverse_temperature is None else tempered(logits, inverse_temperature))
    return applied.sample(torch.Generator().manual_seed(seed))


# 18 unnormalised logits; the rarest action has a probability of about 0.002.
LOGITS = torch.linspace(-2.0, 2.0, 18, dtype=torch.float32) + 3.0


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
    actions = draw(logits.expand(len(rows), 6), 6, rows)
    assert actions.shape == (len(rows),)
    for e, inverse_temperature in enumerate(inverse_temperatures):
        probabilities = softmax(logits.double().numpy() * inverse_temperature)
        # With 5 degrees of freedom, 20.5 is exceeded by one seed in a thousand.
        assert _chi_square(actions[e :: len(inverse_temperatures)], probabilities) < 20.5, inverse_temperature


def test_inverse_temperature_0_is_uniform_and_50_takes_the_best() -> None:
    logits = torch.tensor([[-3e4, 0.0, 3e4, 7.0]]).repeat(20_000, 1)
    uniform = draw(logits, 7, torch.zeros(20_000))
    # With 3 degrees of freedom, 16.3 is exceeded by one seed in a thousand.
    assert _chi_square(uniform, np.full(4, 0.25)) < 16.3
    assert torch.equal(tempered(logits, torch.zeros(20_000)).softmax(-1), torch.full((20_000, 4), 0.25))
    assert (draw(logits, 7, torch.full((20_000,), 50.0)) == 2).all()


def test_temperature_1_gives_the_same_draws_as_none() -> None:
    logits = LOGITS.repeat(500, 1)
    for dtype in (torch.float32, torch.bfloat16):
        plain = draw(logits.to(dtype), 8)
        assert torch.equal(plain, draw(logits.to(dtype), 8, torch.ones(500)))


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
    one = draw(logits, 1)
    assert torch.equal(one, draw(logits, 1))
    other = draw(logits, 2)
    assert 0.45 < (one == other).double().mean() < 0.55
    assert 0.45 < (one[1:] == one[:-1]).double().mean() < 0.55


Rows = st.integers(2, 6).flatmap(
    lambda size: st.tuples(
        *[st.lists(st.floats(-30.0, 30.0), min_size=size, max_size=size)] * 2, st.lists(st.booleans(), min_size=size, max_size=size)
    )
)


@given(Rows, st.floats(-50.0, 50.0), st.sampled_from([0.0, 0.3, 1.0, 7.0]), st.booleans(), st.sampled_from([0.0, 0.01, 0.9]))
def test_every_number_agrees_with_its_sum(
    rows: tuple[list[float], list[float], list[bool]], shift: float, inverse_temperature: float, is_masked: bool, share: float
) -> None:
    logits, others, allowed = rows
    if not is_masked:
        allowed = [True] * len(logits)
    elif not any(allowed):
        allowed[0] = True
    indices = np.flatnonzero(allowed)
    pi, mu = (np.zeros(len(logits)) for _ in range(2))
    for policy_of, each in ((pi, logits), (mu, others)):
        policy_of[indices] = (1.0 - share) * softmax(inverse_temperature * np.array(each)[indices]) + share / len(indices)
    mask = torch.tensor(allowed) if is_masked else None
    policy, behaviour = (
        AppliedCategorical(
            tempered(torch.tensor(each, dtype=torch.float64), torch.tensor(inverse_temperature, dtype=torch.float64)),
            mask,
            uniform_share=share,
        )
        for each in (np.array(logits) + shift, np.array(others))
    )
    agree = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)
    agree(policy.probabilities().numpy(), pi)
    for action in indices.tolist():
        agree(float(policy.log_prob(torch.tensor(action))), math.log(pi[action]))
    agree(float(policy.entropy()), -sum(p * math.log(p) for p in pi[indices]))
    agree(float(policy.kl(behaviour)), sum(p * math.log(p / q) for p, q in zip(pi[indices], mu[indices], strict=True)))
    implied = np.minimum(1.1 * mu, pi)
    agree(policy.implied(behaviour, 1.1).probabilities().numpy(), implied / implied.sum())
    divergence = sum(pi[a] * math.log(pi[a] * implied.sum() / implied[a]) for a in indices)
    agree(float(policy.kl(policy.implied(behaviour, 1.1))), divergence)
    assert int(policy.mode()) in np.flatnonzero(np.isclose(pi, pi.max()))


@pytest.mark.parametrize("inverse_temperature", [0.0, 0.7, 50.0])
def test_gradients_agree_with_the_softmax_and_are_0_where_masked(inverse_temperature: float) -> None:
    """d log pi(a) / d l = (e_a - pi) / tau, and d H / d l = -pi (log pi + H) / tau, over the actions that are allowed."""
    mask, others = torch.tensor([True, False, True, True]), torch.tensor([0.3, 0.1, -0.2, 0.0], dtype=torch.float64)

    def gradient(of: str) -> torch.Tensor:
        logits = torch.tensor([0.2, 9.0, -0.1, 0.4], dtype=torch.float64, requires_grad=True)
        policy = AppliedCategorical(tempered(logits, torch.tensor(inverse_temperature, dtype=torch.float64)), mask)
        number = {
            "log_prob": policy.log_prob(torch.tensor(2)),
            "entropy": policy.entropy(),
            "kl": policy.kl(AppliedCategorical(others, mask)),
        }[of]
        (found,) = torch.autograd.grad(number, logits)
        return found

    allowed = np.array([0, 2, 3])
    pi, mu = softmax(inverse_temperature * np.array([0.2, -0.1, 0.4])), softmax(others.numpy()[allowed])
    entropy, kl = -(pi * np.log(pi)).sum(), (pi * np.log(pi / mu)).sum()
    expected = {"log_prob": np.array([0.0, 1.0, 0.0]) - pi, "entropy": -pi * (np.log(pi) + entropy), "kl": pi * (np.log(pi / mu) - kl)}
    for of, numbers in expected.items():
        found = gradient(of)
        assert found[1] == 0.0
        np.testing.assert_allclose(found.numpy()[allowed], inverse_temperature * numbers, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mask", [None, torch.tensor([True, False, True, True])])
def test_a_share_of_the_uniform_policy_is_drawn_and_has_no_gradient(mask: torch.Tensor | None) -> None:
    """d log pi'(a) / d l = (1 - s) pi(a) / pi'(a) (e_a - pi): nothing pushes an action that only the uniform policy draws."""
    logits = torch.tensor([0.0, 9.0, -30.0, 1.0], dtype=torch.float64, requires_grad=True)
    allowed = np.arange(4) if mask is None else np.flatnonzero(mask.numpy())
    pi = np.zeros(4)
    pi[allowed] = softmax(logits.detach().numpy()[allowed])
    mixed = np.zeros(4)
    mixed[allowed] = 0.9 * pi[allowed] + 0.1 / len(allowed)
    for action in allowed.tolist():
        (found,) = torch.autograd.grad(AppliedCategorical(logits, mask, uniform_share=0.1).log_prob(torch.tensor(action)), logits)
        expected = 0.9 * pi[action] / mixed[action] * (np.eye(4)[action] - pi)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)
    rows = logits.detach().float().repeat(60_000, 1)
    drawn = AppliedCategorical(rows, mask, uniform_share=0.1).sample(torch.Generator().manual_seed(5))
    # With at most 3 degrees of freedom, 16.3 is exceeded by one seed in a thousand.
    assert _chi_square(drawn, np.where(mixed == 0.0, 1e-9, mixed)) < 16.3


def test_the_setting_reaches_the_policy() -> None:
    logits = torch.tensor([30.0, 0.0, -30.0])
    probabilities = Categorical(CategoricalSettings(uniform_share=0.3), discrete(3)).at(logits).probabilities()
    np.testing.assert_allclose(probabilities.numpy(), [0.8, 0.1, 0.1], rtol=1e-5)


def test_a_masked_action_is_never_drawn_at_any_temperature() -> None:
    mask = torch.tensor([[True, False, True]]).repeat(5000, 1)
    for inverse_temperature, drawn in ((0.0, {0, 2}), (0.01, {0, 2}), (50.0, {2})):
        logits = tempered(torch.tensor([[0.0, 1e4, 1.0]]).repeat(5000, 1), torch.full((5000,), inverse_temperature))
        copy = logits.clone()
        policy = AppliedCategorical(logits, mask)
        assert set(policy.sample(torch.Generator().manual_seed(3)).tolist()) == drawn
        assert set(policy.mode().tolist()) <= {0, 2}
        assert torch.equal(logits, copy)


def test_the_first_caller_needs_no_gradient_and_a_later_one_gets_it() -> None:
    logits = torch.tensor([0.1, 0.2], requires_grad=True)
    policy = AppliedCategorical(logits)
    with torch.no_grad():
        policy.entropy()
    policy.log_prob(torch.tensor(0)).backward()
    assert logits.grad is not None
    assert logits.grad.abs().min() > 0.0
