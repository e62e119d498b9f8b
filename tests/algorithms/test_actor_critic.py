"""The whole loss and its gradients agree with the oracle."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Literal

import numpy as np
import pytest
import torch

from herd.algorithms.actor_critic import LossTerms, actor_critic_loss
from herd.algorithms.distributions import AppliedCategorical
from herd.components.losses.impala import ImpalaSettings
from tests.oracles.actor_critic import Batch, Correction, Costs, gradients, importance_ratios, loss_at, targets_and_advantages

torch.set_num_threads(1)

DISCOUNT = 0.93
CORRECTIONS: tuple[Correction, ...] = ("v_trace", "one_step", "epsilon", "none")


def make_batch() -> Batch:
    rng = np.random.default_rng(1)
    num_steps, batch_size, num_actions = 8, 5, 3
    rows = (num_steps, batch_size)
    target_logits = rng.normal(size=(*rows, num_actions))
    terminated, row_valid = np.zeros(rows, dtype=np.bool_), np.ones(rows, dtype=np.bool_)
    terminated[2, 0], row_valid[3, 0] = True, False  # game over, and the row that only resets
    row_valid[4, 1] = False  # a truncation at row 3, whose discount stays
    terminated[[1, 5], 2] = True  # lost lives; the game continues in the next row
    terminated[num_steps - 1, 3] = True
    row_valid[0, 3] = False  # the previous unroll ended with the end of its game
    row_valid[num_steps - 1, 4] = False
    return Batch(
        target_logits=target_logits,
        behaviour_logits=target_logits + rng.normal(scale=0.7, size=target_logits.shape),
        values=2.0 * rng.normal(size=(num_steps + 1, batch_size)),
        actions=rng.integers(num_actions, size=rows),
        rewards=rng.normal(size=rows),
        terminated=terminated,
        row_valid=row_valid,
    )


BATCH = make_batch()


def loss_by_herd(
    batch: Batch, costs: Costs, *, has_entropy_bonus: torch.Tensor | None = None
) -> tuple[LossTerms, torch.Tensor, torch.Tensor]:
    """The loss, and its gradients with respect to logits and values."""
    logits = torch.tensor(batch.target_logits, requires_grad=True)
    values = torch.tensor(batch.values, requires_grad=True)
    terms = actor_critic_loss(
        target=AppliedCategorical(logits),
        behaviour=AppliedCategorical(torch.tensor(batch.behaviour_logits)),
        values=values,
        actions=torch.tensor(batch.actions),
        rewards=torch.tensor(batch.rewards),
        terminated=torch.tensor(batch.terminated),
        row_valid=torch.tensor(batch.row_valid),
        discount=DISCOUNT,
        settings=ImpalaSettings.model_construct(**asdict(costs)),
        has_entropy_bonus=has_entropy_bonus,
    )
    terms.total.backward()
    assert logits.grad is not None
    assert values.grad is not None
    return terms, logits.grad, values.grad


def test_the_inputs_straddle_every_threshold() -> None:
    ratios, costs = importance_ratios(BATCH), Costs()
    edges = [0.0, costs.clip_c_threshold, costs.clip_rho_threshold, costs.clip_pg_rho_threshold, np.inf]
    assert (np.histogram(ratios[BATCH.row_valid], edges)[0] >= 2).all()
    assert len(np.unique(ratios)) == ratios.size
    _, advantages = targets_and_advantages(BATCH, DISCOUNT, costs)
    for sign in (1.0, -1.0):  # a ratio clip of 0.3 keeps rows and drops rows of both signs
        beyond = sign * (ratios - 1.0) > 0.3
        of_sign = BATCH.row_valid & (sign * advantages > 0.0)
        assert (of_sign & beyond).sum() >= 2
        assert (of_sign & ~beyond).sum() >= 2


@pytest.mark.parametrize(
    "costs",
    [Costs(correction=correction) for correction in CORRECTIONS]
    + [Costs(correction=correction, lambda_=0.7, q_estimate="value") for correction in CORRECTIONS]
    + [Costs(correction=correction, q_estimate="v_target") for correction in CORRECTIONS]
    # The costs are large enough to show in a float64 test and to affect the gradient.
    + [Costs(correction="epsilon", log_epsilon=0.2), Costs(correction="one_step", clip_pg_rho_threshold=0.8)]
    + [Costs(correction=correction, advantage_normalization="batch") for correction in CORRECTIONS]
    + [Costs(correction=correction, ratio_clip=0.3) for correction in CORRECTIONS]
    + [Costs(advantage_normalization="batch", ratio_clip=0.3)]
    + [
        Costs(baseline_cost=0.0),
        Costs(entropy_cost=0.0, q_estimate="value"),
        Costs(entropy_cost=1.5),
        Costs(correction="v_trace", lambda_=0.3),
    ],
    ids=str,
)
def test_loss_and_gradients_agree_with_the_oracle(costs: Costs) -> None:
    terms, by_logits, by_values = loss_by_herd(BATCH, costs)
    targets, advantages = targets_and_advantages(BATCH, DISCOUNT, costs)
    for name, expected in loss_at(BATCH.target_logits, BATCH.values, BATCH, targets, advantages, costs).items():
        # Normalising adds 1e-8 to the standard deviation.
        rel = 1e-11 if costs.advantage_normalization == "none" else 1e-7
        assert getattr(terms, name).item() == pytest.approx(expected, rel=rel), name
    expected_by_logits, expected_by_values = gradients(BATCH, targets, advantages, costs)
    np.testing.assert_allclose(by_logits.numpy(), expected_by_logits, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(by_values.numpy(), expected_by_values, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(terms.targets.numpy(), targets, rtol=1e-11)
    rhos = np.minimum(importance_ratios(BATCH), costs.clip_rho_threshold)
    np.testing.assert_allclose(terms.rhos.numpy(), np.where(BATCH.row_valid, rhos, 0.0), rtol=1e-11)
    assert [name for name, term in terms._asdict().items() if isinstance(term, torch.Tensor) and term.requires_grad] == ["total"]


def test_epsilon_bounds_the_logarithm_and_its_gradient() -> None:
    logits = torch.tensor([[[0.0, 400.0]]], dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, 1, dtype=torch.float64)
    terms = actor_critic_loss(
        target=AppliedCategorical(logits),
        behaviour=AppliedCategorical(torch.zeros(1, 1, 2, dtype=torch.float64)),
        values=torch.zeros(2, 1, dtype=torch.float64),
        actions=torch.zeros(1, 1, dtype=torch.int64),
        rewards=one,
        terminated=one.bool(),
        row_valid=one.bool(),
        discount=DISCOUNT,
        settings=ImpalaSettings(correction="epsilon", log_epsilon=1e-6, entropy_cost=0.0),
    )
    (gradient,) = torch.autograd.grad(terms.total, logits)
    assert terms.policy.item() == pytest.approx(-np.log(1e-6))
    assert gradient.abs().max() < 1e-100


@pytest.mark.parametrize("normalization", ["none", "batch"])
@pytest.mark.parametrize("correction", CORRECTIONS)
def test_contents_of_invalid_rows_do_not_matter(correction: Correction, normalization: Literal["none", "batch"]) -> None:
    costs = Costs(correction=correction, advantage_normalization=normalization)
    before = loss_by_herd(BATCH, costs)
    garbage = {
        name: np.where(BATCH.row_valid.reshape(8, 5, *[1] * (array.ndim - 2)), array, np.nan)
        for name, array in (("rewards", BATCH.rewards), ("behaviour_logits", BATCH.behaviour_logits))
    }
    changed = replace(BATCH, **garbage, terminated=BATCH.terminated | ~BATCH.row_valid, actions=np.where(BATCH.row_valid, BATCH.actions, 2))
    after = loss_by_herd(changed, costs)
    torch.testing.assert_close(after, before, rtol=0.0, atol=0.0)
    invalid = torch.tensor(~BATCH.row_valid)
    assert (after[1][invalid] == 0.0).all()
    assert (after[2][:-1][invalid] == 0.0).all()


def test_without_valid_rows_loss_and_gradients_are_zero() -> None:
    nothing = replace(BATCH, row_valid=np.zeros_like(BATCH.row_valid))
    terms, by_logits, by_values = loss_by_herd(nothing, Costs())
    assert not any(term.any() for term in terms[:5])
    assert not by_logits.any()
    assert not by_values.any()


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("values", torch.zeros(9), "values must be"),
        ("rewards", torch.zeros(1, 5), "rewards must be"),
        ("row_valid", torch.ones(8, 5, dtype=torch.uint8), "row_valid must be bool"),
    ],
)
def test_arguments_of_wrong_shape_or_dtype_are_refused(name: str, bad: object, message: str) -> None:
    arguments: dict[str, object] = {
        "target": AppliedCategorical(torch.zeros(8, 5, 3)),
        "behaviour": AppliedCategorical(torch.zeros(8, 5, 3)),
        "values": torch.zeros(9, 5),
        "actions": torch.zeros(8, 5, dtype=torch.int64),
        "rewards": torch.zeros(8, 5),
        "terminated": torch.zeros(8, 5, dtype=torch.bool),
        "row_valid": torch.ones(8, 5, dtype=torch.bool),
        "discount": DISCOUNT,
        "settings": ImpalaSettings(),
    }
    actor_critic_loss(**arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        actor_critic_loss(**(arguments | {name: bad}))  # type: ignore[arg-type]
