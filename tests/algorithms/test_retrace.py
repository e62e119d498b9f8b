"""Retrace agrees with its definition, and satisfies the identities that link it to other returns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from herd.algorithms.returns import retrace
from tests.oracles.retrace import Bootstrap, retrace_targets
from tests.oracles.vtrace import Array, Mask, n_step_returns

torch.set_num_threads(1)

C_BAR = 1.05
# On either side of Table 5's threshold and of 1, and far outside.
RATIOS = (0.02, 0.5, 0.9, 0.98, 1.02, 1.04, 1.07, 1.5, 3.0, 40.0)
BOOTSTRAPS: tuple[Bootstrap, ...] = ("expected", "taken")


@dataclass(frozen=True)
class Unrolls:
    ratios: Array
    discounts: Array
    rewards: Array
    q_values: Array
    expected_next: Array
    trace_mask: Mask

    def by_herd(
        self, *, c_bar: float = C_BAR, lambda_: float = 1.0, bootstrap: Bootstrap = "expected", dtype: torch.dtype = torch.float64
    ) -> Array:
        targets = retrace(
            log_rhos=torch.tensor(np.log(self.ratios), dtype=dtype),
            discounts=torch.tensor(self.discounts, dtype=dtype),
            rewards=torch.tensor(self.rewards, dtype=dtype),
            q_values=torch.tensor(self.q_values, dtype=dtype),
            next_values=torch.tensor(self.expected_next, dtype=dtype),
            trace_mask=None if self.trace_mask.all() else torch.tensor(self.trace_mask),
            clip_c_threshold=c_bar,
            lambda_=lambda_,
            bootstrap=bootstrap,
        )
        assert targets.dtype == dtype
        found: Array = targets.numpy()
        return found

    def by_oracle(self, *, c_bar: float = C_BAR, lambda_: float = 1.0, bootstrap: Bootstrap = "expected") -> Array:
        return retrace_targets(
            ratios=self.ratios,
            discounts=self.discounts,
            rewards=self.rewards,
            q_values=self.q_values,
            expected_next=self.expected_next,
            trace_mask=self.trace_mask,
            c_bar=c_bar,
            lambda_=lambda_,
            bootstrap=bootstrap,
        )


def make_unrolls(num_steps: int, batch_size: int, seed: int, *, episode_ends: bool = True) -> Unrolls:
    rng = np.random.default_rng(seed)
    shape = (num_steps, batch_size)
    # The jitter is smaller than the gaps to the thresholds, and makes all ratios different.
    ratios = np.resize(RATIOS, num_steps * batch_size) * rng.uniform(0.995, 1.005, num_steps * batch_size)
    discounts = rng.uniform(0.9, 0.99, shape)
    trace_mask = np.ones(shape, dtype=np.bool_)
    if episode_ends:
        discounts[rng.random(shape) < 0.15] = 0.0
        trace_mask[rng.random(shape) < 0.15] = False
    return Unrolls(
        ratios=rng.permutation(ratios).reshape(shape),
        discounts=discounts,
        rewards=rng.normal(size=shape),
        q_values=2.0 * rng.normal(size=shape),
        expected_next=2.0 * rng.normal(size=shape),
        trace_mask=trace_mask,
    )


UNROLLS = make_unrolls(9, 7, seed=3)


def test_the_inputs_straddle_every_threshold() -> None:
    edges = [0.0, 0.7, 1.0, C_BAR, np.inf]
    assert (np.histogram(UNROLLS.ratios, edges)[0] > 3).all()
    assert len(np.unique(UNROLLS.ratios)) == UNROLLS.ratios.size
    # A termination, a masked step and an ordinary one inside the unroll, and a masked step after an ordinary one (a truncation).
    ends, masked = UNROLLS.discounts[1:-1] == 0.0, ~UNROLLS.trace_mask[1:-1]
    assert ends.any()
    assert masked.any()
    assert (~ends & ~masked).any()
    assert ((UNROLLS.discounts[:-1] > 0.0) & UNROLLS.trace_mask[:-1] & ~UNROLLS.trace_mask[1:]).any()


@example(num_steps=9, batch_size=7, seed=3, lambda_=1.0, c_bar=C_BAR, bootstrap="expected")
@example(num_steps=9, batch_size=7, seed=3, lambda_=0.7, c_bar=C_BAR, bootstrap="taken")
@given(
    num_steps=st.integers(1, 7),
    batch_size=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    lambda_=st.floats(0.0, 1.0),
    c_bar=st.floats(0.3, 4.0),
    bootstrap=st.sampled_from(BOOTSTRAPS),
)
def test_retrace_agrees_with_the_oracle(
    num_steps: int, batch_size: int, seed: int, lambda_: float, c_bar: float, bootstrap: Bootstrap
) -> None:
    unrolls = make_unrolls(num_steps, batch_size, seed)
    found = unrolls.by_herd(c_bar=c_bar, lambda_=lambda_, bootstrap=bootstrap)
    np.testing.assert_allclose(found, unrolls.by_oracle(c_bar=c_bar, lambda_=lambda_, bootstrap=bootstrap), rtol=1e-10, atol=1e-10)


def test_float32_is_close_and_stays_float32() -> None:
    np.testing.assert_allclose(UNROLLS.by_herd(dtype=torch.float32), UNROLLS.by_oracle(), rtol=1e-4, atol=1e-4)


def test_on_policy_the_form_of_the_paper_is_the_n_step_return() -> None:
    unrolls = replace(make_unrolls(9, 7, seed=5, episode_ends=False), ratios=np.ones((9, 7)))
    unrolls.discounts[[2, 5], [0, 3]] = 0.0
    after_the_end = np.concatenate([np.zeros((9, 7)), unrolls.expected_next[-1:]])
    expected = n_step_returns(discounts=unrolls.discounts, rewards=unrolls.rewards, values=after_the_end)
    np.testing.assert_allclose(unrolls.by_herd(bootstrap="taken"), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bootstrap", BOOTSTRAPS)
def test_a_masked_step_keeps_its_value_and_cuts_the_trace(bootstrap: Bootstrap) -> None:
    unrolls = make_unrolls(7, 2, seed=8, episode_ends=False)
    unrolls.trace_mask[3, 0] = False
    before = unrolls.by_herd(bootstrap=bootstrap)
    assert before[3, 0] == unrolls.q_values[3, 0]
    # The step before bootstraps from the expectation at the final observation, where no action was taken.
    assert before[2, 0] == pytest.approx(unrolls.rewards[2, 0] + unrolls.discounts[2, 0] * unrolls.expected_next[2, 0], rel=1e-12)

    unrolls.rewards[3, 0] = unrolls.expected_next[3, 0] = np.nan
    unrolls.ratios[3, 0] = np.nan
    unrolls.rewards[4:, 0] += 5.0
    unrolls.q_values[4:, 0] -= 3.0
    after = unrolls.by_herd(bootstrap=bootstrap)
    assert (after[:4] == before[:4]).all()
    assert (after[4:, 0] != before[4:, 0]).all()
    unrolls.q_values[3, 0] = np.nan
    assert (unrolls.by_herd(bootstrap=bootstrap)[:3] == before[:3]).all()


def test_a_mask_of_ones_changes_nothing_and_targets_have_no_gradient() -> None:
    unrolls = make_unrolls(4, 3, seed=10, episode_ends=False)
    leaves = {
        "log_rhos": torch.tensor(np.log(unrolls.ratios), requires_grad=True),
        "q_values": torch.tensor(unrolls.q_values, requires_grad=True),
        "next_values": torch.tensor(unrolls.expected_next, requires_grad=True),
    }
    for bootstrap in BOOTSTRAPS:
        targets = retrace(
            log_rhos=leaves["log_rhos"],
            q_values=leaves["q_values"],
            next_values=leaves["next_values"],
            discounts=torch.tensor(unrolls.discounts),
            rewards=torch.tensor(unrolls.rewards),
            trace_mask=torch.ones(4, 3, dtype=torch.bool),
            clip_c_threshold=C_BAR,
            bootstrap=bootstrap,
        )
        assert not targets.requires_grad
        assert (targets.numpy() == unrolls.by_herd(bootstrap=bootstrap)).all()


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("log_rhos", torch.zeros(4), "log_rhos must be"),
        ("rewards", torch.zeros(4, 1), "rewards must be"),
        ("q_values", torch.zeros(5, 3), "q_values must be"),
        ("next_values", torch.zeros(3), "next_values must be"),
        ("trace_mask", torch.ones(4, 3), "trace_mask must be bool"),
        ("bootstrap", "sarsa", "bootstrap must be"),
    ],
)
def test_shapes_that_would_broadcast_are_refused(name: str, bad: object, message: str) -> None:
    arguments: dict[str, object] = {key: torch.zeros(4, 3) for key in ("log_rhos", "discounts", "rewards", "q_values", "next_values")}
    arguments |= {"clip_c_threshold": 1.0}
    retrace(**arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        retrace(**(arguments | {name: bad}))  # type: ignore[arg-type]
