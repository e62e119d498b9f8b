"""IMPALA (arXiv:1802.01561), section 4.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.algorithms.actor_critic import actor_critic_loss
from herd.components.losses.api import LossOutput, loss_metrics

if TYPE_CHECKING:
    from herd.components.losses.api import Forward
    from herd.components.losses.impala import ImpalaSettings


def impala(forward: Forward, settings: ImpalaSettings) -> LossOutput:
    """Policy gradient, value regression to V-trace targets, and entropy bonus."""
    terms = actor_critic_loss(
        target=forward.target,
        behaviour=forward.behaviour,
        values=forward.values,
        value_scale=forward.value_scale,
        actions=forward.actions,
        rewards=forward.rewards,
        terminated=forward.terminated,
        row_valid=forward.trained,
        discount=forward.discount,
        settings=settings,
        has_entropy_bonus=forward.has_entropy_bonus,
    )
    losses = {"loss_policy": (terms.policy, 1.0), "loss_value": (terms.value, settings.baseline_cost)}
    metrics = loss_metrics(forward, terms, losses, entropy_cost=settings.entropy_cost)
    return LossOutput(terms.total, metrics, terms.targets, terms.gate.accepted)
