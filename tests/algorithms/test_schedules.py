"""The schedules' first, middle and last values, and how AdamW uses them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from herd.algorithms.schedules import learning_rate_at, learning_rate_at_update, weight_decay_at_update
from tests.oracles.adamw import adamw_path

torch.set_num_threads(1)


@pytest.mark.parametrize(("env_frames", "expected"), [(0, 6e-4), (50, 4.5e-4), (100, 3e-4), (199, 3e-6), (200, 0.0), (300, 0.0)])
def test_the_linear_schedule_reaches_zero_at_its_end_and_stays(env_frames: int, expected: float) -> None:
    rate = learning_rate_at(env_frames, learning_rate=6e-4, schedule="linear", schedule_env_frames=200)
    assert rate == pytest.approx(expected, rel=1e-9, abs=1e-18)
    assert rate >= 0.0


def test_the_constant_schedule_is_constant() -> None:
    assert learning_rate_at(10**9, learning_rate=6e-4, schedule="constant", schedule_env_frames=200) == 6e-4


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="'cosine'"):
        learning_rate_at(0, learning_rate=6e-4, schedule="cosine", schedule_env_frames=200)  # type: ignore[arg-type]


def test_warm_up_and_decay_are_linear() -> None:
    warmup, end = 40, 190
    found = [learning_rate_at_update(n, learning_rate=5e-4, warmup_updates=warmup, schedule_updates=end) for n in range(end + 20)]
    # Update n + 1 of the warm-up lies on the line from 0 to the full rate; update n + 1 after it lies on the line that starts there.
    rising = np.interp(np.arange(1, warmup + 1), [0, warmup], [0.0, 5e-4])
    falling = np.interp(np.arange(warmup, end + 20), [warmup, end], [5e-4, 0.0])
    np.testing.assert_allclose(found, np.concatenate([rising, falling]), rtol=1e-12, atol=1e-18)
    assert min(found[:end]) > 0.0
    assert max(found[end:]) == 0.0


def test_warm_up_and_decay_follow_table_5() -> None:
    def rate(learner_updates: int) -> float:
        return learning_rate_at_update(learner_updates, learning_rate=5e-4, warmup_updates=4000, schedule_updates=20_000)

    corners = {0: 1.25e-7, 1999: 2.5e-4, 3999: 5e-4, 4000: 5e-4, 12_000: 2.5e-4, 19_999: 3.125e-8, 20_000: 0.0, 10**9: 0.0}
    for learner_updates, expected in corners.items():
        assert rate(learner_updates) == pytest.approx(expected, rel=1e-12, abs=1e-20), learner_updates


def test_without_a_warm_up_the_first_update_has_the_full_rate() -> None:
    assert learning_rate_at_update(0, learning_rate=5e-4, warmup_updates=0, schedule_updates=10) == 5e-4


@pytest.mark.parametrize("warmup_updates", [-1, 10, 11])
def test_a_warm_up_that_never_ends_is_refused(warmup_updates: int) -> None:
    with pytest.raises(ValueError, match="warmup_updates must be"):
        learning_rate_at_update(0, learning_rate=5e-4, warmup_updates=warmup_updates, schedule_updates=10)


@pytest.mark.parametrize(("learner_updates", "expected"), [(0, 0.01), (50, 0.0075), (100, 0.005), (199, 5e-5), (200, 0.0), (300, 0.0)])
def test_the_weight_decay_falls_to_zero_from_the_start(learner_updates: int, expected: float) -> None:
    decay = weight_decay_at_update(learner_updates, weight_decay=0.01, schedule_updates=200)
    assert decay == pytest.approx(expected, rel=1e-9, abs=1e-18)
    assert decay >= 0.0


def test_adamw_with_the_schedules_agrees_with_the_oracle() -> None:
    rng = np.random.default_rng(3)
    start, num_updates = rng.normal(size=(3, 2)), 12
    gradients = [rng.normal(size=(3, 2)) * 10.0 ** rng.integers(-6, 1, size=(3, 2)) for _ in range(num_updates)]
    # The rates are large enough for both weight decay and step to show.
    rates = [learning_rate_at_update(n, learning_rate=0.3, warmup_updates=4, schedule_updates=num_updates) for n in range(num_updates)]
    decays = [weight_decay_at_update(n, weight_decay=0.5, schedule_updates=num_updates) for n in range(num_updates)]
    parameter = torch.nn.Parameter(torch.tensor(start))
    optimizer = torch.optim.AdamW([parameter], betas=(0.9, 0.98), eps=1e-6)
    expected = adamw_path(start, gradients, rates, decays, betas=(0.9, 0.98), epsilon=1e-6)
    for gradient, rate, decay, position in zip(gradients, rates, decays, expected, strict=True):
        optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"] = rate, decay
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(parameter.detach().numpy(), position, rtol=1e-10, atol=1e-12)
