"""DiCE (arXiv:2106.00707): "An Entropy Regularization Free Mechanism for Policy-based Reinforcement Learning"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.algorithms.dice import ENTROPY_ABLATION_COST, dice_loss
from herd.algorithms.distributions import AppliedCategorical
from herd.components.losses.api import LossOutput, loss_metrics

if TYPE_CHECKING:
    from herd.components.losses.api import Forward
    from herd.components.losses.dice import DiceSettings


def dice(forward: Forward, settings: DiceSettings) -> LossOutput:
    """Learn V from V-trace targets, Q from Retrace targets, and the policy from the policy gradient times tau (equation 8).

    With PopArt, advantages are in units of the task's scale: ``Q = scale (v + A) + shift``. Targets are linear in values and rewards, so
    both are divided by the scale, and targets are multiplied by it. The policy softmax(A / tau) does not depend on the scale, so actors
    need neither scale nor task. PopArt's rewrite preserves V and the policy; the part of Q that is A follows the scale.
    """
    # The temperature of step t at row t + 1: for a truncated game's final observation, that row may hold the next game's already.
    next_masks = None if forward.action_masks is None else forward.action_masks[1:]
    next_target = forward.distribution.at(forward.parameters[1:], inverse_temperature=forward.inverse_temperature, mask=next_masks)
    target, behaviour = forward.target, forward.behaviour
    assert isinstance(target, AppliedCategorical)  # DiceSettings.objection
    assert isinstance(next_target, AppliedCategorical)
    assert isinstance(behaviour, AppliedCategorical)
    values, rewards = forward.values, forward.rewards
    if forward.value_scale is not None:
        values, rewards = values / forward.value_scale, rewards / forward.value_scale
    terms = dice_loss(
        advantages=forward.parameters,
        target=target,
        next_target=next_target,
        behaviour=behaviour,
        values=values,
        actions=forward.actions,
        rewards=rewards,
        terminated=forward.terminated,
        row_valid=forward.trained,
        discount=forward.discount,
        settings=settings,
        has_entropy_bonus=forward.has_entropy_bonus,
    )
    losses = {
        "loss_policy": (terms.policy, settings.policy_cost),
        "loss_value": (terms.value, settings.baseline_cost),
        "loss_q": (terms.q, settings.q_cost),
    }
    metrics = loss_metrics(forward, terms, losses, entropy_cost=ENTROPY_ABLATION_COST if settings.ablation == "entropy" else 0.0)
    targets = terms.targets if forward.value_scale is None else terms.targets * forward.value_scale
    return LossOutput(terms.total, metrics, targets, terms.gate.accepted)
