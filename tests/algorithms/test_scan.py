"""The scan over time agrees with the recurrence computed step by step in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from herd.algorithms.returns import scan_back


@pytest.mark.parametrize("num_steps", [1, 2, 3, 4, 5, 16, 17, 80])
def test_the_scan_agrees_with_the_stepwise_recurrence(num_steps: int) -> None:
    random = np.random.default_rng(num_steps)
    added, last = random.normal(size=(num_steps, 3, 2)), random.normal(size=(3, 2))
    factors = random.uniform(-1.2, 1.2, size=added.shape) * (random.random(added.shape) > 0.2)
    expected, following = np.empty_like(added), last
    for t in reversed(range(num_steps)):
        following = expected[t] = added[t] + factors[t] * following
    found = scan_back(*(torch.from_numpy(array) for array in (added, factors, last)))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)
