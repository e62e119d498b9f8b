"""DiCE's loss and its gradients agree with the oracle, and stay finite at every temperature."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from herd.algorithms.dice import DiceTerms, dice_loss, policy_surrogate
from herd.algorithms.distributions import AppliedCategorical, tempered
from herd.components.losses.dice import DiceSettings
from tests.oracles.dice import Batch, Costs, constants, gradients, importance_ratios, losses

torch.set_num_threads(1)

DISCOUNT = 0.93
NUM_STEPS, BATCH_SIZE, NUM_ACTIONS = 8, 5, 3
# Both ends of Table 5's range, tau = 1, and values between.
INVERSE_TEMPERATURES = (0.0, 1e-3, 0.3, 1.0, 7.0, 50.0)


def make_batch() -> Batch:
    rng = np.random.default_rng(2)
    rows = (NUM_STEPS, BATCH_SIZE)
    advantages = rng.normal(size=(NUM_STEPS + 1, BATCH_SIZE, NUM_ACTIONS))
    inverse_temperature, terminated, row_valid = np.zeros(rows), np.zeros(rows, dtype=np.bool_), np.ones(rows, dtype=np.bool_)
    terminated[2, 0], row_valid[3, 0] = True, False  # game over, and the row that only resets
    inverse_temperature[:3, 0], inverse_temperature[3:, 0] = 1.0, 5.0
    row_valid[4, 1] = False  # a truncation at row 3: row 4 is its final observation and holds the next game's temperature
    inverse_temperature[:4, 1], inverse_temperature[4:, 1] = 0.7, 50.0
    terminated[[1, 5], 2] = True  # lost lives; the game and its temperature continue
    inverse_temperature[:, 2] = 0.0
    terminated[NUM_STEPS - 1, 3] = True
    row_valid[0, 3] = False  # the previous unroll ended with the end of its game
    inverse_temperature[:, 3] = 0.4
    row_valid[NUM_STEPS - 1, 4] = False
    inverse_temperature[:, 4] = 1.5
    return Batch(
        advantages=advantages,
        values=2.0 * rng.normal(size=(NUM_STEPS + 1, BATCH_SIZE)),
        behaviour_advantages=advantages[:-1] + rng.normal(scale=0.5, size=advantages[:-1].shape),
        inverse_temperature=inverse_temperature,
        actions=rng.integers(NUM_ACTIONS, size=rows),
        rewards=rng.normal(size=rows),
        terminated=terminated,
        row_valid=row_valid,
    )


BATCH = make_batch()


@dataclass(frozen=True)
class Found:
    terms: DiceTerms
    by_advantages: torch.Tensor
    by_values: torch.Tensor


def policies(advantages: torch.Tensor, behaviour: torch.Tensor, inverse_temperature: torch.Tensor) -> dict[str, Any]:
    """The policies of a loss at the temperatures of its steps."""
    rows = {"target": advantages[:-1], "next_target": advantages[1:], "behaviour": behaviour}
    return {name: AppliedCategorical(tempered(own, inverse_temperature)) for name, own in rows.items()}


def loss_by_herd(
    batch: Batch,
    costs: Costs,
    *,
    dtype: torch.dtype = torch.float64,
) -> Found:
    """The loss, and its gradients with respect to advantages and values."""
    advantages = torch.tensor(batch.advantages, dtype=dtype, requires_grad=True)
    values = torch.tensor(batch.values, dtype=dtype, requires_grad=True)
    terms = dice_loss(
        advantages=advantages,
        **policies(
            advantages,
            torch.tensor(batch.behaviour_advantages, dtype=dtype),
            torch.tensor(batch.inverse_temperature, dtype=dtype),
        ),
        values=values,
        actions=torch.tensor(batch.actions),
        rewards=torch.tensor(batch.rewards, dtype=dtype),
        terminated=torch.tensor(batch.terminated),
        row_valid=torch.tensor(batch.row_valid),
        discount=DISCOUNT,
        settings=DiceSettings.model_construct(**asdict(costs)),
    )
    terms.total.backward()
    assert advantages.grad is not None
    assert values.grad is not None
    return Found(terms, advantages.grad, values.grad)


def test_the_inputs_straddle_every_threshold() -> None:
    ratios, costs = importance_ratios(BATCH), Costs()
    edges = [0.0, costs.clip_c_threshold, costs.clip_rho_threshold, costs.clip_pg_rho_threshold, np.inf]
    tempered_rows = BATCH.row_valid & (BATCH.inverse_temperature > 0.0)
    assert (np.histogram(ratios[tempered_rows], edges)[0] >= 2).all()
    assert len(np.unique(ratios[tempered_rows])) == tempered_rows.sum()
    assert (ratios[BATCH.inverse_temperature == 0.0] == 1.0).all()


@pytest.mark.parametrize(
    "costs",
    [
        Costs(),
        Costs(clip_rho_threshold=1.05, clip_c_threshold=1.05, clip_pg_rho_threshold=1.05),  # Table 5
        Costs(retrace_bootstrap="taken"),
        Costs(retrace_bootstrap="taken", lambda_=0.6),
        Costs(lambda_=0.3, q_estimate="value"),
        Costs(ablation="entropy"),
        Costs(ablation="baseline"),
        Costs(ablation="random"),
        Costs(policy_cost=0.0),
        Costs(q_cost=0.0, baseline_cost=0.3),
        Costs(baseline_cost=0.0, q_cost=2.0, policy_cost=3.0),
        Costs(correction="none"),
        Costs(correction="one_step", retrace_bootstrap="taken"),
        Costs(correction="epsilon", log_epsilon=0.2),
    ],
    ids=str,
)
def test_loss_and_gradients_agree_with_the_oracle(costs: Costs) -> None:
    found = loss_by_herd(BATCH, costs)
    fixed = constants(BATCH, DISCOUNT, costs)
    for name, expected in losses(BATCH, fixed, costs).items():
        assert getattr(found.terms, name).item() == pytest.approx(expected, rel=1e-11), name
    by_advantages, by_values = gradients(BATCH, fixed, costs)
    np.testing.assert_allclose(found.by_advantages.numpy(), by_advantages, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.by_values.numpy(), by_values, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.terms.targets.numpy(), fixed.v_targets, rtol=1e-11)
    rhos = np.minimum(importance_ratios(BATCH), costs.clip_rho_threshold)
    np.testing.assert_allclose(found.terms.rhos.numpy(), np.where(BATCH.row_valid, rhos, 0.0), rtol=1e-11)
    assert [name for name, term in found.terms._asdict().items() if isinstance(term, torch.Tensor) and term.requires_grad] == ["total"]


def surrogate_at(advantages: torch.Tensor, actions: torch.Tensor, inverse_temperature: torch.Tensor) -> torch.Tensor:
    policy = AppliedCategorical(tempered(advantages, inverse_temperature)).probabilities().detach()
    return policy_surrogate(advantages, actions, policy)


def test_the_surrogate_in_float32_follows_float64() -> None:
    advantages = torch.linspace(-1.0, 1.0, 18).repeat(6, 1)
    actions = torch.arange(6) * 3
    inverse_temperature = torch.tensor(INVERSE_TEMPERATURES)
    expected = surrogate_at(advantages.double(), actions, inverse_temperature.double())
    found = surrogate_at(advantages, actions, inverse_temperature)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ablation", ["dice", "entropy"])
@pytest.mark.parametrize("inverse_temperature", INVERSE_TEMPERATURES)
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_loss_and_gradients_are_finite_in_float32_at_any_temperature(inverse_temperature: float, scale: float, ablation: str) -> None:
    batch = replace(
        BATCH,
        advantages=scale * BATCH.advantages,
        behaviour_advantages=scale * BATCH.behaviour_advantages,
        inverse_temperature=np.full_like(BATCH.inverse_temperature, inverse_temperature),
    )
    found = loss_by_herd(batch, Costs(ablation=ablation), dtype=torch.float32)  # type: ignore[arg-type]
    assert all(torch.isfinite(term).all() for term in found.terms[:-1])
    assert torch.isfinite(found.by_advantages).all()
    assert torch.isfinite(found.by_values).all()
    assert found.by_advantages.abs().max() > 0.0


@pytest.mark.parametrize("costs", [Costs(), Costs(retrace_bootstrap="taken"), Costs(correction="epsilon", ablation="entropy")], ids=str)
def test_contents_of_invalid_rows_do_not_matter(costs: Costs) -> None:
    before = loss_by_herd(BATCH, costs)
    invalid = ~BATCH.row_valid
    changed = replace(
        BATCH,
        rewards=np.where(invalid, np.nan, BATCH.rewards),
        behaviour_advantages=np.where(invalid[..., None], np.nan, BATCH.behaviour_advantages),
        inverse_temperature=np.where(invalid, 3.0, BATCH.inverse_temperature),
        terminated=BATCH.terminated | invalid,
        actions=np.where(invalid, 2, BATCH.actions),
    )
    after = loss_by_herd(changed, costs)
    torch.testing.assert_close(after.terms, before.terms, rtol=0.0, atol=0.0)
    torch.testing.assert_close(after.by_advantages, before.by_advantages, rtol=0.0, atol=0.0)
    assert (after.by_advantages[:-1][torch.tensor(invalid)] == 0.0).all()
    assert (after.by_values[:-1][torch.tensor(invalid)] == 0.0).all()


def test_without_valid_rows_loss_and_gradients_are_zero() -> None:
    nothing = replace(BATCH, row_valid=np.zeros_like(BATCH.row_valid))
    found = loss_by_herd(nothing, Costs(ablation="entropy"))
    assert not any(term.any() for term in found.terms[:6])
    assert not found.by_advantages.any()
    assert not found.by_values.any()


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("advantages", torch.zeros(9, 5), "advantages must be"),
        ("values", torch.zeros(8, 5), "values must be"),
        ("actions", torch.zeros(8, 1, dtype=torch.int64), "actions must be"),
        ("rewards", torch.zeros(1, 5), "rewards must be"),
        ("terminated", torch.ones(8, 5), "terminated must be bool"),
        ("row_valid", torch.ones(8, 5, dtype=torch.uint8), "row_valid must be bool"),
    ],
)
def test_arguments_of_wrong_shape_or_dtype_are_refused(name: str, bad: object, message: str) -> None:
    by_row = (NUM_STEPS, BATCH_SIZE)
    advantages = torch.zeros(NUM_STEPS + 1, BATCH_SIZE, NUM_ACTIONS)
    arguments: dict[str, object] = {
        "advantages": advantages,
        **policies(advantages, torch.zeros(*by_row, NUM_ACTIONS), torch.zeros(by_row)),
        "values": torch.zeros(NUM_STEPS + 1, BATCH_SIZE),
        "actions": torch.zeros(by_row, dtype=torch.int64),
        "rewards": torch.zeros(by_row),
        "terminated": torch.zeros(by_row, dtype=torch.bool),
        "row_valid": torch.ones(by_row, dtype=torch.bool),
        "discount": DISCOUNT,
        "settings": DiceSettings(),
    }
    dice_loss(**arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        dice_loss(**(arguments | {name: bad}))  # type: ignore[arg-type]
