"""Continuous actions and actions of several numbers: each number of a distribution against its definition."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from herd.algorithms.distributions import AppliedCategorical, AppliedNormal
from herd.components.actions import ACTIONS
from herd.components.actions.normal import NormalSettings
from herd.components.actions.normal.normal import MAX_LOG_DEVIATION, MIN_LOG_DEVIATION
from herd.components.actions.product import ProductSettings
from herd.contract.spaces import ActionSpace, continuous, discrete
from tests.oracles.actor_critic import softmax
from tests.oracles.distributions import (
    joint_table,
    normal_density,
    normal_expectation,
    numeric_gradient,
    squashed_density,
    table_entropy,
    table_kl,
)

torch.set_num_threads(1)
agree = partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-8)
_QUADRATURE_ERROR = 2e-4
"""Of the entropy of a squashed number, in nats."""
Normals = st.lists(st.tuples(st.floats(-2.0, 2.0), st.floats(-3.0, 0.7)), min_size=1, max_size=3)


def normal_of(rows: list[tuple[float, float]], *, is_squashed: bool, requires_grad: bool = False) -> tuple[AppliedNormal, torch.Tensor]:
    parameters = torch.tensor(rows, dtype=torch.float64).T.contiguous().requires_grad_(requires_grad)
    return AppliedNormal(parameters[0], parameters[1], is_squashed=is_squashed), parameters


@given(Normals, st.floats(-2.5, 2.5), st.floats(-1.0, 1.0), st.booleans())
def test_normals_agree_with_integrals(rows: list[tuple[float, float]], drawn: float, shift: float, is_squashed: bool) -> None:
    policy, _ = normal_of(rows, is_squashed=is_squashed)
    others = [(mean + shift, log_deviation - 0.5 * shift) for mean, log_deviation in rows]
    behaviour, _ = normal_of(others, is_squashed=is_squashed)
    action = math.tanh(drawn) if is_squashed else drawn
    density = squashed_density if is_squashed else normal_density
    pairs = [(mean, math.exp(log_deviation)) for mean, log_deviation in rows]
    other_pairs = [(mean, math.exp(log_deviation)) for mean, log_deviation in others]
    # A density of 1e-300 has lost its digits, so logarithms are compared where it is larger.
    if all(density(action, *pair) > 1e-200 for pair in pairs):
        expected = sum(math.log(density(action, *pair)) for pair in pairs)
        agree(float(policy.log_prob(torch.full((len(rows),), action, dtype=torch.float64))), expected, rtol=1e-6)

    def log_normal(x: Any, mean: float, deviation: float) -> Any:
        return -0.5 * ((x - mean) / deviation) ** 2 - math.log(deviation * math.sqrt(2 * math.pi))

    def log_slope(x: Any) -> Any:
        return np.log(4.0) - 2.0 * np.logaddexp(x, -x)  # 1 - tanh^2 = 4 / (e^x + e^-x)^2

    def surprise(x: Any, pair: tuple[float, float]) -> Any:
        return -(log_normal(x, *pair) - is_squashed * log_slope(x))

    entropy = sum(normal_expectation(partial(surprise, pair=pair), *pair) for pair in pairs)
    agree(float(policy.entropy()), entropy, atol=_QUADRATURE_ERROR if is_squashed else 1e-8)

    def log_ratio(x: Any, one: tuple[float, float], other: tuple[float, float]) -> Any:
        return log_normal(x, *one) - log_normal(x, *other)

    each = zip(pairs, other_pairs, strict=True)
    ratio = sum(normal_expectation(partial(log_ratio, one=one, other=other), *one) for one, other in each)
    agree(float(policy.kl(behaviour)), ratio, atol=1e-7)


@pytest.mark.parametrize("log_deviation", [MIN_LOG_DEVIATION, 0.0, 1.0, MAX_LOG_DEVIATION])
def test_the_entropy_of_squashed_numbers_holds_for_every_deviation(log_deviation: float) -> None:
    for mean in (0.0, 0.5, 2.0, 10.0):
        policy, _ = normal_of([(mean, log_deviation)], is_squashed=True)

        def log_slope(x: Any) -> Any:
            return np.log(4.0) - 2.0 * np.logaddexp(x, -x)

        expected = log_deviation + 0.5 * math.log(2.0 * math.pi * math.e) + normal_expectation(log_slope, mean, math.exp(log_deviation))
        agree(float(policy.entropy()), expected, rtol=0.0, atol=_QUADRATURE_ERROR)


@pytest.mark.parametrize("is_squashed", [False, True])
def test_gradients_of_normals_agree_with_differences(is_squashed: bool) -> None:
    rows = [(0.4, -0.3), (-1.1, 0.2)]
    actions = torch.tensor([0.7, -0.35], dtype=torch.float64)
    other, _ = normal_of([(0.1, 0.0), (-0.9, -0.4)], is_squashed=is_squashed)
    numbers = {"log_prob": lambda policy: policy.log_prob(actions), "entropy": AppliedNormal.entropy, "kl": lambda policy: policy.kl(other)}
    for name, number in numbers.items():
        policy, parameters = normal_of(rows, is_squashed=is_squashed, requires_grad=True)
        (found,) = torch.autograd.grad(number(policy), parameters)

        def at(flat: np.ndarray, number: Any = number) -> float:
            moved, _ = normal_of([(mean, deviation) for mean, deviation in flat.reshape(2, 2).T], is_squashed=is_squashed)
            return float(number(moved))

        expected = numeric_gradient(at, np.array(rows).T.ravel())
        np.testing.assert_allclose(found.numpy().ravel(), expected, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("is_squashed", [False, True])
def test_drawn_numbers_have_mean_and_deviation_and_a_seed_repeats_them(is_squashed: bool) -> None:
    policy = AppliedNormal(
        torch.tensor([0.5, -1.0]).expand(100_000, 2), torch.tensor([-1.0, 0.4]).expand(100_000, 2), is_squashed=is_squashed
    )
    drawn = policy.sample(torch.Generator().manual_seed(1))
    assert torch.equal(drawn, policy.sample(torch.Generator().manual_seed(1)))
    assert torch.isfinite(policy.log_prob(drawn)).all()
    if is_squashed:
        assert drawn.abs().max() < 1.0
        drawn = drawn.double().atanh()
    for index, (mean, deviation) in enumerate(((0.5, math.exp(-1.0)), (-1.0, math.exp(0.4)))):
        # Five standard errors of 100,000 draws.
        assert abs(float(drawn[:, index].mean()) - mean) < 5 * deviation / math.sqrt(100_000)
        assert abs(float(drawn[:, index].std()) / deviation - 1.0) < 5 / math.sqrt(200_000)
    assert policy.mode()[0].tolist() == pytest.approx([math.tanh(0.5), math.tanh(-1.0)] if is_squashed else [0.5, -1.0])


def test_squashed_actions_at_the_bounds_have_finite_numbers_and_gradients() -> None:
    mean = torch.tensor([30.0, -30.0], requires_grad=True)
    policy = AppliedNormal(mean, torch.tensor([2.0, -5.0]), is_squashed=True)
    for actions in (policy.sample(None), torch.tensor([1.0, -1.0])):  # the last are not of this policy, but may come in a message
        number = policy.log_prob(actions) + policy.entropy()
        assert torch.isfinite(number)
        assert torch.isfinite(torch.autograd.grad(number, mean)[0]).all()


Integers = st.lists(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9), st.booleans()), min_size=1, max_size=4), min_size=1, max_size=3)


@given(Integers, st.booleans())
def test_several_integers_agree_with_the_table_of_all_actions(rows: list[list[tuple[float, float, bool]]], is_masked: bool) -> None:
    space = discrete(*(len(row) for row in rows))
    allowed = [np.array([is_allowed for *_, is_allowed in row]) | (not is_masked) for row in rows]
    allowed = [each if each.any() else ~each for each in allowed]  # a number without an allowed value belongs to no game: all are
    tables = []
    for index in (0, 1):
        probabilities = [np.zeros(len(row)) for row in rows]
        for table, row, where in zip(probabilities, rows, allowed, strict=True):
            table[where] = softmax(np.array([entry[index] for entry in row])[where])
        tables.append(joint_table(probabilities))
    mask = torch.tensor([is_allowed for row in rows for *_, is_allowed in row]) if is_masked else None
    distribution = ACTIONS.make(ProductSettings(), space)
    policy, behaviour = (
        distribution.at(torch.tensor([entry[index] for row in rows for entry in row], dtype=torch.float64), mask=mask) for index in (0, 1)
    )
    for action, probability in tables[0].items():
        if probability > 0.0:
            agree(float(policy.log_prob(torch.tensor(action))), math.log(probability))
    agree(float(policy.entropy()), table_entropy(tables[0]))
    agree(float(policy.kl(behaviour)), table_kl(*tables))
    assert tables[0][tuple(policy.mode().tolist())] == pytest.approx(max(tables[0].values()))
    drawn = policy.sample(torch.Generator().manual_seed(1))
    assert drawn.dtype == torch.int64
    assert tables[0][tuple(drawn.tolist())] > 0.0


def test_a_masked_integer_is_never_drawn_and_has_no_gradient() -> None:
    torch.manual_seed(3)
    distribution = ACTIONS.make(ProductSettings(), discrete(3, 4))
    parameters = torch.randn(6, 7, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(6, 7, dtype=torch.bool)
    mask[:, [1, 5]] = False
    masked = distribution.at(parameters, mask=mask)
    number = masked.log_prob(masked.sample(None)) + masked.entropy() + masked.kl(distribution.at(torch.zeros(6, 7), mask=mask))
    (gradient,) = torch.autograd.grad(number.sum(), parameters)
    assert torch.count_nonzero(gradient[:, [1, 5]]) == 0
    assert torch.count_nonzero(gradient) == 5 * 6
    likely = torch.tensor([0.0, 9.0, 0.0, 0.0, 0.0, 9.0, 0.0]).expand(5000, 7)
    for inverse_temperature in (None, torch.zeros(5000), torch.ones(5000)):
        applied = distribution.at(likely, inverse_temperature=inverse_temperature, mask=mask[:1].expand(5000, 7))
        drawn = applied.sample(torch.Generator().manual_seed(4))
        assert set(drawn[:, 0].tolist()) == {0, 2}
        assert set(drawn[:, 1].tolist()) == {0, 1, 3}


def test_integers_beside_continuous_numbers_are_the_sum_of_both() -> None:
    """The continuous numbers come first and last in the action, and after the logits in the parameters."""
    low, high = (-1.0, 0.0, 0.0, -2.0), (1.0, 2.0, 1.0, 2.0)
    space = ActionSpace(low, high, (False, True, True, False))
    distribution = ACTIONS.make(ProductSettings(), space)
    assert distribution.num_parameters == ProductSettings().num_parameters(space) == 3 + 2 + 4
    parameters = 0.5 * torch.randn(2, 9, generator=torch.Generator().manual_seed(5))
    policy, other = distribution.at(parameters), distribution.at(parameters + 0.1)
    actions = torch.tensor([[0.3, 2.0, 1.0, -0.7], [7.0, 0.0, 9.0, 0.1]])  # an integer out of range is taken as the nearest
    parts: Any = (
        AppliedCategorical(parameters[:, :3]),
        AppliedCategorical(parameters[:, 3:5]),
        AppliedNormal(*parameters[:, 5:].chunk(2, -1)),
    )
    moved = parameters + 0.1
    others = (AppliedCategorical(moved[:, :3]), AppliedCategorical(moved[:, 3:5]), AppliedNormal(*moved[:, 5:].chunk(2, -1)))
    numbers = (torch.tensor([2, 0]), torch.tensor([1, 1]), actions[:, [0, 3]])
    pairs: Any = list(zip(parts, others, strict=True))
    agree(policy.log_prob(actions).numpy(), sum(part.log_prob(each) for part, each in zip(parts, numbers, strict=True)), rtol=1e-5)
    agree(policy.entropy().numpy(), sum(part.entropy() for part in parts), rtol=1e-5)
    agree(policy.kl(other).numpy(), sum(one.kl(another) for one, another in pairs), rtol=1e-5)
    drawn = policy.sample(None)
    assert drawn.dtype == torch.float32
    assert drawn.shape == (2, 4)
    assert torch.equal(policy.mode()[:, 1], parts[0].mode().float())
    assert torch.equal(policy.mode()[:, [0, 3]], parts[2].mode())
    encoded = distribution.encode(actions[:1], torch.tensor([True]))
    assert encoded.tolist() == [[0, 0, 1, 0, 1, pytest.approx(0.3), pytest.approx(-0.7)]]
    assert torch.count_nonzero(distribution.encode(actions, torch.tensor([False, False]))) == 0


@pytest.mark.parametrize("deviation", ["parameter", "network"])
def test_normals_start_at_the_initial_deviation_within_limits_that_keep_a_gradient(deviation: Any) -> None:
    settings = NormalSettings(deviation=deviation, initial_deviation=0.5)
    distribution: Any = ACTIONS.make(settings, continuous([-1.0, -math.inf], [1.0, math.inf]))
    head = distribution.head(4, "orthogonal")
    features = torch.randn(6, 4)
    parameters = head(features)
    assert parameters.shape == (6, 4)
    np.testing.assert_allclose(parameters[:, 2:].exp().detach().numpy(), 0.5, rtol=0.1)
    distribution.at(parameters).entropy().sum().backward()
    assert all(parameter.grad is not None for parameter in head.parameters())
    one, infinite = torch.ones(6), torch.zeros(6)
    assert torch.equal(distribution.at(parameters, inverse_temperature=one).entropy(), distribution.at(parameters).entropy())
    widest = distribution.at(parameters, inverse_temperature=infinite).entropy()
    np.testing.assert_allclose(widest.detach().numpy(), 2 * (2.0 + 0.5 * math.log(2 * math.pi * math.e)), rtol=1e-5)
    hot = distribution.at(parameters, inverse_temperature=torch.full((6,), 0.25)).entropy() - distribution.at(parameters).entropy()
    np.testing.assert_allclose(hot.detach().numpy(), 2 * math.log(2.0), rtol=1e-4)  # twice the deviation of each of two numbers
    assert distribution.encode(torch.tensor([[3.0, 3.0]]), torch.tensor([True])).tolist() == [[3.0, 3.0]]
    bounded: Any = ACTIONS.make(settings, continuous([-4.0, 0.0], [4.0, 1.0]))
    assert bounded.encode(torch.tensor([[3.0, -0.5]]), torch.tensor([True])).tolist() == [[1.0, -0.5]]  # bounds are mapped to [-1, 1]
