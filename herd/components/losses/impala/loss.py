"""IMPALA (arXiv:1802.01561), section 4.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.algorithms.actor_critic import actor_critic_loss
from herd.components.losses.api import LossOutput, Metric, off_policy_metrics

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
    accepted = terms.gate.accepted
    rows = accepted.sum()
    entropy_rows = (accepted & forward.has_entropy_bonus).sum()
    metrics = {
        "loss_policy": Metric(terms.policy, rows, cost=1.0),
        "loss_value": Metric(terms.value, rows, cost=settings.baseline_cost),
        "entropy": Metric(terms.entropy, entropy_rows, cost=-settings.entropy_cost),
        **off_policy_metrics(forward, terms.rhos, terms.gate),
    }
    return LossOutput(terms.total, metrics, terms.targets, accepted)
