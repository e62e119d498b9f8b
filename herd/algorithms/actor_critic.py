"""The actor-critic loss: IMPALA (arXiv:1802.01561), section 4.2, over any correction of section 5.2.2.

T agent steps of B unrolls, time-major. Row t holds ``x_t``, the action taken there and what that step returned; the
values have one row more, ``V(x_T)``, to bootstrap from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from herd.algorithms.returns import corrected_targets
from herd.algorithms.shapes import check_rows
from herd.algorithms.trust_region import Gate, gate

if TYPE_CHECKING:
    from herd.algorithms.distributions import Applied
    from herd.components.losses import VTraceSettings
    from herd.components.losses.impala import ImpalaSettings


_SMALLEST_SPREAD = 1e-8
"""Keeps advantages at 0 if they are all equal."""


class LossTerms(NamedTuple):
    """Sums over the accepted rows, on the device of the logits, so that the terms of parts of B add up; only ``total`` carries a gradient.

    A row is accepted where it is valid and within the trust region, if there is one.
    """

    total: Tensor
    """``policy + baseline_cost * value - entropy_cost * entropy``."""
    policy: Tensor
    """``-sum pg_advantage * log pi(a|x)``."""
    value: Tensor
    """``1/2 sum (v - V(x))^2``: its gradient is section 4.2's ``(v - V) grad V``, without a factor 2."""
    entropy: Tensor
    """The policy's entropy in nats, before its cost; over the accepted rows that have the bonus."""
    rhos: Tensor
    """``min(rho-bar, pi/mu)``, [T, B], of the valid rows, 0 at others. Its mean is a sample of Theorem 1's ``E_mu rho_0``: 1 on-policy,
    less the more off-policy the data is."""
    targets: Tensor
    """``v``, [T, B]: what the values are fitted to. At a row that is not accepted it is V(x)."""
    gate: Gate
    """Which rows are accepted, and how far policies are apart."""


def actor_critic_loss(
    *,
    target: Applied,
    behaviour: Applied,
    values: Tensor,
    actions: Tensor,
    rewards: Tensor,
    terminated: Tensor,
    row_valid: Tensor,
    discount: float,
    settings: ImpalaSettings,
    has_entropy_bonus: Tensor | None = None,
    value_scale: Tensor | None = None,
) -> LossTerms:
    """Compute the policy gradient and value regression over the accepted rows, and an entropy bonus over those of them that have it.

    Args:
        target: the policy being trained, ``[T, B]`` float32 with gradient (float64 throughout works too).
        behaviour: the policy that the actions were drawn from, ``[T, B]``.
        values: ``V(x_0) .. V(x_T)``, ``[T + 1, B]`` with gradient; as targets and baselines they are constants.
        actions: ``[T, B, ...]``, as the policies take them.
        rewards: already shaped, ``[T, B]``.
        terminated: ``[T, B]`` bool; nothing after such a step counts for it. A truncated step is no special case: its discount stays,
            the next row holds the final observation, whose value bootstraps, and is itself invalid, which cuts the trace.
        row_valid: ``[T, B]`` bool; an invalid row only reset the game. It enters no term and lets no trace pass.
        discount: gamma, per agent step.
        settings: of the loss.
        has_entropy_bonus: ``[B]`` bool, the unrolls with the entropy bonus (online ones: LASER, section 5.1). None: all.
        value_scale: PopArt's scale of each unroll's task, ``[B]``: divides the values' errors and the advantages, so that the losses are
            those of normalised values. None: 1.

    Raises:
        ValueError: a shape or dtype does not fit.

    """
    if values.ndim != 2 or len(values) < 2:
        raise ValueError(f"values must be [T + 1, B] with T >= 1, got {list(values.shape)}")
    check_rows(values[1:].shape, rewards=rewards, terminated=terminated, row_valid=row_valid)

    corrected = correct(
        target=target,
        behaviour=behaviour,
        actions=actions,
        rewards=rewards,
        values=values,
        discounts=discount * (~terminated).to(values.dtype),
        row_valid=row_valid,
        settings=settings,
    )
    target_log_probs, behaviour_log_probs, gated, vs, pg_advantages, policy_log_probs = corrected
    accepted = gated.accepted

    errors = vs - values[:-1]
    if value_scale is not None:
        errors, pg_advantages = errors / value_scale, pg_advantages / value_scale

    log_ratios = target_log_probs.detach() - behaviour_log_probs
    ratios = log_ratios.masked_fill(~accepted, 0.0).exp()
    if settings.advantage_normalization == "batch":
        is_weighted = settings.correction in {"v_trace", "one_step"}
        weights = ratios.clamp(max=settings.clip_pg_rho_threshold) if is_weighted else torch.ones_like(ratios)
        pg_advantages = normalised_advantages(pg_advantages, weights, accepted)
    if settings.ratio_clip is not None:
        pg_advantages = clipped_advantages(pg_advantages, ratios, settings.ratio_clip)

    # At a row that is not accepted the advantage is 0 and v = V(x), so the first two sums are masked already.
    policy = -(pg_advantages * policy_log_probs).sum()
    value = 0.5 * errors.square().sum()
    entropy = target.entropy().masked_fill(~(accepted if has_entropy_bonus is None else accepted & has_entropy_bonus), 0.0).sum()
    total = policy + settings.baseline_cost * value - settings.entropy_cost * entropy

    rhos = log_ratios.exp().clamp(max=settings.clip_rho_threshold)
    return LossTerms(total, policy.detach(), value.detach(), entropy.detach(), rhos.masked_fill(~row_valid, 0.0), vs, gated)


class Corrected(NamedTuple):
    """The common input of all losses with an off-policy correction; [T, B]."""

    target_log_probs: Tensor
    """Log-probabilities of the actions taken, with gradient."""
    behaviour_log_probs: Tensor
    gate: Gate
    targets: Tensor
    """``v``."""
    pg_advantages: Tensor
    policy_log_probs: Tensor
    """The term that the policy gradient differentiates: ``log pi(a)``, except with the epsilon correction."""


def correct(
    *,
    target: Applied,
    behaviour: Applied,
    actions: Tensor,
    rewards: Tensor,
    values: Tensor,
    discounts: Tensor,
    row_valid: Tensor,
    settings: VTraceSettings,
) -> Corrected:
    """Compute both policies' log-probabilities, the rows that the gate accepts, and the targets of the correction.

    ``values`` are [T + 1, B] and treated as constants.
    """
    target_log_probs, behaviour_log_probs = target.log_prob(actions), behaviour.log_prob(actions)
    gated = gate(settings, target=target, behaviour=behaviour, row_valid=row_valid)
    constant_values = values.detach()
    targets = corrected_targets(
        settings,
        behaviour_log_probs=behaviour_log_probs,
        target_log_probs=target_log_probs,
        discounts=discounts,
        rewards=rewards,
        values=constant_values[:-1],
        bootstrap_value=constant_values[-1],
        trace_mask=gated.accepted,
    )
    return Corrected(target_log_probs, behaviour_log_probs, gated, *targets)


def normalised_advantages(weighted: Tensor, weights: Tensor, accepted: Tensor) -> Tensor:
    """PPO's normalisation (arXiv:1707.06347's code), of advantages that carry importance weights.

    ``w (A - m) / s`` with ``m = sum w A / sum w``, a baseline, which no policy gradient is biased by, and s the root of the mean of
    ``(w (A - m))^2`` over the accepted rows. With all weights 1 these are the advantages' mean and standard deviation.

    Args:
        weighted: ``w A``, [T, B], without gradient.
        weights: w, [T, B].
        accepted: bool [T, B]; other rows count nowhere and get 0.
    """
    kept = weights.masked_fill(~accepted, 0.0)
    advantages = weighted.masked_fill(~accepted, 0.0)
    centred = advantages - kept * (advantages.sum() / kept.sum().clamp(min=_SMALLEST_SPREAD))
    spread = (centred.square().sum() / accepted.sum().clamp(min=1)).sqrt()
    return centred / (spread + _SMALLEST_SPREAD)


def clipped_advantages(pg_advantages: Tensor, ratios: Tensor, epsilon: float) -> Tensor:
    """Return the advantages, 0 where the gradient of PPO's clipped objective (arXiv:1707.06347, eq. 7) is 0; all [T, B]."""
    is_beyond = ((ratios > 1.0 + epsilon) & (pg_advantages > 0.0)) | ((ratios < 1.0 - epsilon) & (pg_advantages < 0.0))
    return pg_advantages.masked_fill(is_beyond, 0.0)
