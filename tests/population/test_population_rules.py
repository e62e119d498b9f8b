"""The rules compared with the sentences of IMPALA's appendix F, each with its own slow oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import isclose, log
from random import Random
from typing import Any

import pytest
from herd_population.rules import choose_partner, is_better, is_ready, perturbed

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("env_frames", "episodes_since", "ready"),
    [
        (20 * MILLION - 1, 9_999, False),  # "a burn-in period of 20 million frames where no evolution is done"
        (20 * MILLION, 4_999, False),  # "After collecting 5,000 episode rewards in total"
        (20 * MILLION, 5_000, True),
        (900 * MILLION, 0, False),
        (900 * MILLION, 5_001, True),
    ],
)
def test_a_member_is_ready_after_the_burn_in_and_enough_games(env_frames: int, episodes_since: int, ready: bool) -> None:
    found = is_ready(env_frames=env_frames, burn_in_env_frames=20 * MILLION, episodes_since=episodes_since, fitness_episodes=5_000)
    assert found is ready


@pytest.mark.parametrize(
    ("partner", "own", "better"), [(0.55, 0.51, False), (0.56, 0.5, True), (0.05, 0.0, False), (0.4, 0.7, False), (0.06, 0.0, True)]
)
def test_better_means_an_absolute_difference_above_five_percent(partner: float, own: float, better: bool) -> None:
    """0.05 against 0 is exactly 5 %, and not more. 0.55 against 0.51 is 8 % more in relative terms, but only 4 % in absolute terms."""
    assert is_better(partner, own, 0.05) is better


@pytest.mark.parametrize("member", [0, 2, 4])
def test_partners_are_drawn_uniformly_from_the_other_members(member: int) -> None:
    random = Random(7)
    counts = Counter(choose_partner(member, 5, random) for _ in range(8_000))
    assert set(counts) == {0, 1, 2, 3, 4} - {member}
    # 2,000 of each are expected, with a standard deviation of 39.
    assert all(abs(count - 2_000) < 5 * 39 for count in counts.values())


SETTINGS = {"optimizer.learning_rate": 3e-4, "loss.entropy_cost": 2e-3, "optimizer.epsilon": 0.1, "optimizer.max_gradient_norm": 40.0}


def _perturbed(random: Random, settings: dict[str, float] = SETTINGS, probability: float = 0.33) -> dict[str, float]:
    found = perturbed(settings, random, probability=probability, factor=1.2, is_allowed=lambda _: True)
    assert list(found) == list(settings)
    return found  # type: ignore[return-value]


def test_each_number_is_perturbed_independently_with_probability_0_33() -> None:
    """In 10,000 draws each number moves 3,300 times (standard deviation 47), half of them up, and all 3 ^ 4 patterns of the four occur."""
    random = Random(1)
    patterns: Counter[tuple[int, ...]] = Counter()
    for _ in range(10_000):
        found = _perturbed(random)
        exponents = []
        for key, value in SETTINGS.items():
            exponent = round(log(found[key] / value) / log(1.2))
            assert isclose(found[key], value * 1.2**exponent, rel_tol=1e-12)
            exponents.append(exponent)
        patterns[tuple(exponents)] += 1
    assert len(patterns) == 81
    for place in range(4):
        ups = sum(count for pattern, count in patterns.items() if pattern[place] == 1)
        downs = sum(count for pattern, count in patterns.items() if pattern[place] == -1)
        assert abs(ups + downs - 3_300) < 5 * 47
        assert abs(ups - downs) < 5 * 58
    # The numbers move independently: two of them move together in 0.33 ^ 2 = 10.9 % of all cases.
    both = sum(count for pattern, count in patterns.items() if pattern[0] and pattern[1])
    assert abs(both - 1_089) < 5 * 31


def test_perturbation_is_unbiased_in_the_logarithm() -> None:
    """The paper: "our multiplication is unbiased", unlike 1.2 and 0.8. The mean of the logarithm stays constant over a long walk."""
    ends = []
    for seed in range(400):
        random, settings = Random(seed), {"loss.entropy_cost": 1.0}
        for _ in range(30):
            settings = _perturbed(random, settings)
        ends.append(log(settings["loss.entropy_cost"]) / log(1.2))
    # 30 steps of variance 0.33 have a standard deviation of 3.1, or 0.16 for the mean; with 1.2 and 0.8 the mean would end at -1.
    assert abs(sum(ends) / len(ends)) < 5 * 0.16


def is_a_decay(values: Mapping[str, Any]) -> bool:
    return bool(values["optimizer.decay"] <= 1.0)


def test_values_that_are_not_numbers_or_not_allowed_are_unchanged() -> None:
    settings: dict[str, Any] = {"loss.q_estimate": "value", "a": True, "b": None, "c": 0.0}
    settings |= {"optimizer.decay": 0.99, "loss.clip_rho_threshold": 1.0}
    found = perturbed(settings, Random(3), probability=1.0, factor=1.2, is_allowed=is_a_decay)
    assert {key: found[key] for key in ("loss.q_estimate", "a", "b", "c")} == {"loss.q_estimate": "value", "a": True, "b": None, "c": 0.0}
    assert found["loss.clip_rho_threshold"] in {1.2, 1 / 1.2}
    seen = {perturbed(settings, Random(seed), probability=1.0, factor=1.2, is_allowed=is_a_decay)["optimizer.decay"] for seed in range(20)}
    assert seen == {0.99, 0.99 / 1.2}


@pytest.mark.parametrize(("value", "ups"), [(1, {2, 0}), (3, {4, 2}), (10, {12, 8}), (100, {120, 83})])
def test_perturbed_integers_stay_integers(value: int, ups: set[int]) -> None:
    found = {_perturbed(Random(seed), {"n": value}, 1.0)["n"] for seed in range(20)}
    assert found == ups
    assert all(type(number) is int for number in found)
