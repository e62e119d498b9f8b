"""V-trace agrees with its definition and satisfies the identities of section 4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from herd.algorithms.returns import VTraceReturns, scan_back, vtrace
from tests.oracles.vtrace import Array, Mask, lambda_returns, n_step_returns, policy_gradient_advantages, vtrace_targets

torch.set_num_threads(1)

# c-bar < rho-bar < pg-rho-bar, so that confusing two thresholds shows.
C_BAR, RHO_BAR, PG_RHO_BAR = 0.9, 1.1, 1.4
# At least one ratio in each interval between the thresholds, and some far outside.
RATIOS = (0.02, 0.5, 0.85, 0.95, 1.05, 1.15, 1.35, 1.45, 3.0, 40.0)


@dataclass(frozen=True)
class Unrolls:
    ratios: Array
    discounts: Array
    rewards: Array
    values: Array
    trace_mask: Mask

    def by_herd(
        self,
        *,
        rho_bar: float = RHO_BAR,
        c_bar: float = C_BAR,
        pg_rho_bar: float = PG_RHO_BAR,
        lambda_: float = 1.0,
        q_estimate: Literal["v_trace", "value"] = "v_trace",
        dtype: torch.dtype = torch.float64,
    ) -> VTraceReturns:
        values = torch.tensor(self.values, dtype=dtype)
        return vtrace(
            log_rhos=torch.tensor(np.log(self.ratios), dtype=dtype),
            discounts=torch.tensor(self.discounts, dtype=dtype),
            rewards=torch.tensor(self.rewards, dtype=dtype),
            values=values[:-1],
            bootstrap_value=values[-1],
            trace_mask=None if self.trace_mask.all() else torch.tensor(self.trace_mask),
            clip_rho_threshold=rho_bar,
            clip_c_threshold=c_bar,
            clip_pg_rho_threshold=pg_rho_bar,
            lambda_=lambda_,
            q_estimate=q_estimate,
        )

    def targets_by_oracle(self, *, rho_bar: float = RHO_BAR, c_bar: float = C_BAR, lambda_: float = 1.0) -> Array:
        return vtrace_targets(
            ratios=self.ratios,
            discounts=self.discounts,
            rewards=self.rewards,
            values=self.values,
            trace_mask=self.trace_mask,
            rho_bar=rho_bar,
            c_bar=c_bar,
            lambda_=lambda_,
        )


def make_unrolls(num_steps: int, batch_size: int, seed: int, *, episode_ends: bool = True, on_policy: bool = False) -> Unrolls:
    rng = np.random.default_rng(seed)
    shape = (num_steps, batch_size)
    # The jitter is smaller than the gaps to the thresholds, and makes all ratios different.
    ratios = np.resize(RATIOS, shape[0] * shape[1]) * rng.uniform(0.99, 1.01, shape[0] * shape[1])
    ratios = np.ones(shape) if on_policy else rng.permutation(ratios).reshape(shape)
    discounts = rng.uniform(0.9, 0.99, shape)
    trace_mask = np.ones(shape, dtype=np.bool_)
    if episode_ends:
        discounts[rng.random(shape) < 0.15] = 0.0
        trace_mask[rng.random(shape) < 0.15] = False
    return Unrolls(ratios, discounts, rng.normal(size=shape), 2.0 * rng.normal(size=(num_steps + 1, batch_size)), trace_mask)


UNROLLS = make_unrolls(9, 7, seed=3)


def test_the_inputs_straddle_every_threshold() -> None:
    edges = [0.0, C_BAR, 1.0, RHO_BAR, PG_RHO_BAR, np.inf]
    assert (np.histogram(UNROLLS.ratios, edges)[0] > 3).all()
    assert len(np.unique(UNROLLS.ratios)) == UNROLLS.ratios.size
    inner_discounts, inner_mask = UNROLLS.discounts[1:-1], UNROLLS.trace_mask[1:-1]
    assert (inner_discounts == 0.0).any()
    assert not inner_mask.all()
    assert ((inner_discounts > 0.0) & inner_mask).any()


@example(num_steps=9, batch_size=7, seed=3, lambda_=1.0, rho_bar=RHO_BAR, c_share=C_BAR / RHO_BAR, q_estimate="v_trace")
@example(num_steps=9, batch_size=7, seed=3, lambda_=0.7, rho_bar=RHO_BAR, c_share=C_BAR / RHO_BAR, q_estimate="value")
@given(
    num_steps=st.integers(1, 7),
    batch_size=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    lambda_=st.floats(0.0, 1.0),
    rho_bar=st.floats(0.3, 4.0),
    c_share=st.floats(0.1, 1.0),
    q_estimate=st.sampled_from(["v_trace", "value"]),
)
def test_vtrace_agrees_with_the_oracle(
    num_steps: int, batch_size: int, seed: int, lambda_: float, rho_bar: float, c_share: float, q_estimate: Literal["v_trace", "value"]
) -> None:
    unrolls = make_unrolls(num_steps, batch_size, seed)
    c_bar = c_share * rho_bar
    returns = unrolls.by_herd(rho_bar=rho_bar, c_bar=c_bar, lambda_=lambda_, q_estimate=q_estimate)
    targets = unrolls.targets_by_oracle(rho_bar=rho_bar, c_bar=c_bar, lambda_=lambda_)
    np.testing.assert_allclose(returns.vs.numpy(), targets, rtol=1e-10, atol=1e-10)
    advantages = policy_gradient_advantages(
        targets=targets,
        ratios=unrolls.ratios,
        discounts=unrolls.discounts,
        rewards=unrolls.rewards,
        values=unrolls.values,
        trace_mask=unrolls.trace_mask,
        pg_rho_bar=PG_RHO_BAR,
        q_estimate=q_estimate,
    )
    np.testing.assert_allclose(returns.pg_advantages.numpy(), advantages, rtol=1e-10, atol=1e-10)


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


def test_float32_is_close_and_stays_float32() -> None:
    returns = UNROLLS.by_herd(dtype=torch.float32)
    assert returns.vs.dtype == returns.pg_advantages.dtype == torch.float32
    np.testing.assert_allclose(returns.vs.numpy(), UNROLLS.targets_by_oracle(), rtol=1e-4, atol=1e-4)


def test_on_policy_is_the_n_step_return() -> None:
    unrolls = make_unrolls(9, 7, seed=4, on_policy=True)
    unrolls.trace_mask[:] = True
    returns = unrolls.by_herd(rho_bar=1.0, c_bar=1.0)
    expected = n_step_returns(discounts=unrolls.discounts, rewards=unrolls.rewards, values=unrolls.values)
    np.testing.assert_allclose(returns.vs.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lambda_", [0.0, 0.4, 0.95, 1.0])
def test_on_policy_with_lambda_is_td_lambda(lambda_: float) -> None:
    unrolls = make_unrolls(8, 5, seed=5, episode_ends=False, on_policy=True)
    returns = unrolls.by_herd(rho_bar=1.0, c_bar=1.0, lambda_=lambda_)
    expected = lambda_returns(discounts=unrolls.discounts, rewards=unrolls.rewards, values=unrolls.values, lambda_=lambda_)
    np.testing.assert_allclose(returns.vs.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_a_masked_step_keeps_its_value_and_cuts_the_trace() -> None:
    unrolls = make_unrolls(7, 2, seed=7, episode_ends=False)
    unrolls.trace_mask[3, 0] = False
    before = unrolls.by_herd()
    assert before.vs[3, 0] == unrolls.values[3, 0]
    assert before.pg_advantages[3, 0] == 0.0

    unrolls.rewards[3, 0] = np.nan
    unrolls.ratios[3, 0] = np.inf
    unrolls.rewards[4:, 0] += 5.0
    unrolls.values[4:, 0] -= 3.0
    after = unrolls.by_herd()
    torch.testing.assert_close(after.vs[:4], before.vs[:4], rtol=0.0, atol=0.0)
    torch.testing.assert_close(after.pg_advantages[:4], before.pg_advantages[:4], rtol=0.0, atol=0.0)
    assert (after.vs[4:, 0] != before.vs[4:, 0]).all()
    # The step before bootstraps from V at the masked row: this is the rule for the last observation of a truncated episode.
    rho = min(RHO_BAR, unrolls.ratios[2, 0])
    delta = unrolls.rewards[2, 0] + unrolls.discounts[2, 0] * unrolls.values[3, 0] - unrolls.values[2, 0]
    assert before.vs[2, 0].item() == pytest.approx(unrolls.values[2, 0] + rho * delta, rel=1e-12)


def test_a_mask_of_ones_changes_nothing_and_targets_have_no_gradient() -> None:
    unrolls = make_unrolls(4, 3, seed=9, episode_ends=False)
    values = torch.tensor(unrolls.values, requires_grad=True)
    log_rhos = torch.tensor(np.log(unrolls.ratios), requires_grad=True)
    returns = vtrace(
        log_rhos=log_rhos,
        discounts=torch.tensor(unrolls.discounts),
        rewards=torch.tensor(unrolls.rewards),
        values=values[:-1],
        bootstrap_value=values[-1],
        trace_mask=torch.ones(4, 3, dtype=torch.bool),
        clip_rho_threshold=RHO_BAR,
        clip_c_threshold=C_BAR,
        clip_pg_rho_threshold=PG_RHO_BAR,
    )
    for with_mask, without in zip(returns, unrolls.by_herd(), strict=True):
        assert not with_mask.requires_grad
        torch.testing.assert_close(with_mask, without, rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("log_rhos", torch.zeros(4), "log_rhos must be"),
        ("rewards", torch.zeros(4, 1), "rewards must be"),
        ("values", torch.zeros(5, 3), "values must be"),
        ("bootstrap_value", torch.zeros(1), "bootstrap_value must be"),
        ("trace_mask", torch.ones(4, 3), "trace_mask must be bool"),
        ("q_estimate", "retrace", "q_estimate must be"),
    ],
)
def test_shapes_that_would_broadcast_are_refused(name: str, bad: object, message: str) -> None:
    arguments: dict[str, object] = {key: torch.zeros(4, 3) for key in ("log_rhos", "discounts", "rewards", "values")}
    arguments |= {"bootstrap_value": torch.zeros(3), "clip_rho_threshold": 1.0, "clip_c_threshold": 1.0, "clip_pg_rho_threshold": 1.0}
    vtrace(**arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        vtrace(**(arguments | {name: bad}))  # type: ignore[arg-type]
