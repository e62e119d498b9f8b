"""LASER's trust region against the float64 oracle of eqs. (3) and (8), in both losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from herd.algorithms.distributions import AppliedCategorical
from herd.algorithms.returns import vtrace
from herd.algorithms.trust_region import gate
from herd.components.losses import VTraceSettings
from tests.algorithms.test_actor_critic import BATCH, DISCOUNT, loss_by_herd
from tests.algorithms.test_dice import BATCH as DICE_BATCH
from tests.algorithms.test_dice import loss_by_herd as dice_by_herd
from tests.oracles import actor_critic as ac
from tests.oracles import dice, laser
from tests.oracles.vtrace import Array

REFERENCES: tuple[Literal["implied", "behaviour"], ...] = ("implied", "behaviour")
RHO_BARS = (0.7, 1.0, 2.5)


def _policies(batch: ac.Batch) -> tuple[Array, Array]:
    return (
        np.array([[ac.softmax(logits) for logits in row] for row in batch.target_logits]),
        np.array([[ac.softmax(logits) for logits in row] for row in batch.behaviour_logits]),
    )


TARGET, BEHAVIOUR = _policies(BATCH)


def _median_threshold(reference: Literal["implied", "behaviour"], rho_bar: float) -> float:
    """A threshold between two divergences of the batch, with as many rows on either side, ignoring rows where nothing is clipped."""
    found = np.sort(laser.divergences(TARGET, BEHAVIOUR, rho_bar, reference)[BATCH.row_valid])
    found = found[found > 1e-9]
    middle = len(found) // 2
    return float(found[middle - 1 : middle + 1].mean())


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("rho_bar", RHO_BARS)
def test_a_step_is_accepted_below_the_threshold(reference: Literal["implied", "behaviour"], rho_bar: float) -> None:
    threshold = _median_threshold(reference, rho_bar)
    expected = laser.divergences(TARGET, BEHAVIOUR, rho_bar, reference)
    found = gate(
        VTraceSettings.model_construct(trust_region=reference, trust_region_threshold=threshold, clip_rho_threshold=rho_bar),
        target=AppliedCategorical(torch.tensor(BATCH.target_logits)),
        behaviour=AppliedCategorical(torch.tensor(BATCH.behaviour_logits)),
        row_valid=torch.tensor(BATCH.row_valid),
    )
    assert found.divergence is not None
    np.testing.assert_allclose(found.divergence.numpy(), np.where(BATCH.row_valid, expected, 0.0), rtol=1e-10, atol=1e-14)
    np.testing.assert_array_equal(found.accepted.numpy(), laser.accepted(BATCH.row_valid, expected, threshold))
    assert 0.3 < found.accepted.numpy()[BATCH.row_valid].mean() < 0.95


def test_a_divergence_equal_to_the_threshold_is_rejected() -> None:
    pi, mu = (AppliedCategorical(torch.tensor([[each]]).log()) for each in ([0.5, 0.5], [0.9, 0.1]))
    valid = torch.ones(1, 1, dtype=torch.bool)
    exact = float(pi.kl(mu))
    for threshold, is_accepted in ((exact, False), (exact * 1.0001, True)):
        found = gate(VTraceSettings(trust_region="behaviour", trust_region_threshold=threshold), target=pi, behaviour=mu, row_valid=valid)
        assert bool(found.accepted) is is_accepted


@given(st.lists(st.floats(-30.0, 30.0, width=32), min_size=2, max_size=18), st.sampled_from(RHO_BARS))
def test_divergences_are_not_negative_and_0_for_equal_policies(logits: list[float], rho_bar: float) -> None:
    """This is tested in float32, where a plain sum gives about -4e-8 for equal policies."""
    policy = AppliedCategorical(torch.tensor(logits))
    for other in (policy, policy.implied(policy, rho_bar)):
        assert 0.0 <= float(policy.kl(other)) < 1e-5
    assert float(policy.kl(AppliedCategorical(torch.tensor(logits[::-1])))) >= 0.0


@pytest.mark.parametrize("reference", REFERENCES)
def test_trust_region_v_trace_agrees_with_equation_8(reference: Literal["implied", "behaviour"]) -> None:
    rho_bar, c_bar = 1.1, 0.9
    relevant = laser.divergences(TARGET, BEHAVIOUR, rho_bar, reference) < _median_threshold(reference, rho_bar)
    lambdas = (relevant & BATCH.row_valid).astype(np.float64)
    ratios = ac.importance_ratios(BATCH)
    discounts = np.where(BATCH.terminated, 0.0, DISCOUNT)
    expected = laser.trust_region_returns(
        lambdas=lambdas, ratios=ratios, discounts=discounts, rewards=BATCH.rewards, values=BATCH.values, rho_bar=rho_bar, c_bar=c_bar
    )
    found = vtrace(
        log_rhos=torch.tensor(ratios).log(),
        discounts=torch.tensor(discounts),
        rewards=torch.tensor(BATCH.rewards),
        values=torch.tensor(BATCH.values[:-1]),
        bootstrap_value=torch.tensor(BATCH.values[-1]),
        trace_mask=torch.tensor(relevant & BATCH.row_valid),
        clip_rho_threshold=rho_bar,
        clip_c_threshold=c_bar,
        clip_pg_rho_threshold=1.0,
    ).vs.numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(found[lambdas == 0.0], BATCH.values[:-1][lambdas == 0.0])
    # Some traces end at a rejected step, and some run through accepted ones.
    assert ((lambdas[:-1] == 1.0) & (lambdas[1:] == 0.0)).any()
    assert ((lambdas[:-1] == 1.0) & (lambdas[1:] == 1.0)).any()


@pytest.mark.parametrize("q_estimate", ["v_trace", "v_target"])
@pytest.mark.parametrize("reference", REFERENCES)
def test_rejected_steps_do_not_affect_the_actor_critic_loss(
    reference: Literal["implied", "behaviour"], q_estimate: Literal["v_trace", "v_target"]
) -> None:
    """Loss and gradients equal those of the batch with that step marked invalid; the entropy uses online columns only."""
    costs = ac.Costs(
        trust_region=reference, trust_region_threshold=_median_threshold(reference, 1.1), entropy_cost=0.3, q_estimate=q_estimate
    )
    divergence = laser.divergences(TARGET, BEHAVIOUR, costs.clip_rho_threshold, reference)
    censored = replace(BATCH, row_valid=laser.accepted(BATCH.row_valid, divergence, costs.trust_region_threshold))
    is_replayed = np.array([False, True, True, False, True])
    targets, advantages = ac.targets_and_advantages(censored, DISCOUNT, costs)
    terms, by_logits, by_values = loss_by_herd(BATCH, costs, has_entropy_bonus=torch.tensor(~is_replayed))

    online = replace(censored, row_valid=censored.row_valid & ~is_replayed)
    nothing = np.zeros_like(advantages)
    all_rows = ac.loss_at(BATCH.target_logits, BATCH.values, censored, targets, advantages, replace(costs, entropy_cost=0.0))
    online_rows = ac.loss_at(BATCH.target_logits, BATCH.values, online, BATCH.values[:-1], nothing, costs)
    assert terms.policy.item() == pytest.approx(all_rows["policy"], rel=1e-11)
    assert terms.value.item() == pytest.approx(all_rows["value"], rel=1e-11)
    assert terms.entropy.item() == pytest.approx(online_rows["entropy"], rel=1e-11)
    assert terms.total.item() == pytest.approx(all_rows["total"] + online_rows["total"], rel=1e-11)
    expected_by_logits, expected_by_values = ac.gradients(censored, targets, advantages, replace(costs, entropy_cost=0.0))
    entropy_by_logits, _ = ac.gradients(online, BATCH.values[:-1], nothing, costs)
    np.testing.assert_allclose(by_logits.numpy(), expected_by_logits + entropy_by_logits, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(by_values.numpy(), expected_by_values, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("reference", REFERENCES)
def test_rejected_steps_do_not_affect_the_dice_loss(reference: Literal["implied", "behaviour"]) -> None:
    """Both policies use the row's temperature: at infinite tau they are equal, and all such rows are accepted."""

    def policies(advantages: Array) -> Array:
        return np.array(
            [
                [dice.boltzmann(each, beta) for each, beta in zip(*rows, strict=True)]
                for rows in zip(advantages, DICE_BATCH.inverse_temperature, strict=True)
            ]
        )

    target, behaviour = policies(DICE_BATCH.advantages[:-1]), policies(DICE_BATCH.behaviour_advantages)
    divergence = laser.divergences(target, behaviour, 1.1, reference)
    valid = DICE_BATCH.row_valid
    threshold = float(np.quantile(divergence[valid & (DICE_BATCH.inverse_temperature > 0.0)], 0.6))
    accepted = laser.accepted(valid, divergence, threshold)
    assert accepted[(DICE_BATCH.inverse_temperature == 0.0) & valid].all()
    assert 0.3 < accepted[valid].mean() < 0.9
    costs = dice.Costs(trust_region=reference, trust_region_threshold=threshold)
    found = dice_by_herd(DICE_BATCH, costs)
    censored = replace(DICE_BATCH, row_valid=accepted)
    fixed = dice.constants(censored, DISCOUNT, costs)
    for name, expected in dice.losses(censored, fixed, costs).items():
        assert getattr(found.terms, name).item() == pytest.approx(expected, rel=1e-11), name
    by_advantages, by_values = dice.gradients(censored, fixed, costs)
    np.testing.assert_allclose(found.by_advantages.numpy(), by_advantages, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.by_values.numpy(), by_values, rtol=1e-9, atol=1e-11)


def test_rhos_include_rejected_steps() -> None:
    costs = ac.Costs(trust_region="behaviour", trust_region_threshold=1e-6)
    terms, _, _ = loss_by_herd(BATCH, costs)
    assert not terms.gate.accepted.any()
    clipped = np.minimum(ac.importance_ratios(BATCH), costs.clip_rho_threshold)
    np.testing.assert_allclose(terms.rhos.numpy(), np.where(BATCH.row_valid, clipped, 0.0), rtol=1e-12)
