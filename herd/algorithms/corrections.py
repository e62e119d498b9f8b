"""The four off-policy corrections of IMPALA's Table 2 (arXiv:1802.01561, section 5.2.2) behind one function."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from herd.algorithms.vtrace import QEstimate, vtrace

Correction = Literal["v_trace", "one_step", "epsilon", "none"]


class CorrectedTargets(NamedTuple):
    """The results of a correction that the loss needs, each ``[T, B]``."""

    vs: Tensor
    """Targets of the values; no gradient."""
    pg_advantages: Tensor
    """Weights of the policy gradient, importance weight included; no gradient."""
    policy_log_probs: Tensor
    """``log pi(a_t|x_t)``, or ``log(pi(a_t|x_t) + epsilon)``; carries the gradient of ``target_log_probs``."""


def corrected_targets(
    correction: Correction,
    *,
    behaviour_log_probs: Tensor,
    target_log_probs: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    trace_mask: Tensor | None = None,
    clip_rho_threshold: float,
    clip_c_threshold: float,
    clip_pg_rho_threshold: float,
    lambda_: float,
    q_estimate: QEstimate,
    log_epsilon: float,
) -> CorrectedTargets:
    """Compute targets and advantages with one of the corrections. The policy gradient is ``pg_advantages * grad policy_log_probs``.

    - ``none``: the data is treated as on-policy. All ratios are 1, so the targets are n-step returns (eq. 2) and no threshold applies.
    - ``epsilon``: as ``none``, with ``log(pi + log_epsilon)`` in the policy gradient.
    - ``one_step``: targets as ``none``; the advantage is multiplied by its own importance weight, clipped at ``clip_pg_rho_threshold``.
    - ``v_trace``: section 4.

    ``lambda_``, ``q_estimate`` and ``trace_mask`` act on all four. ``behaviour_log_probs`` and ``target_log_probs`` are the
    log-probabilities of the taken actions, ``[T, B]``; the other arguments are those of ``vtrace``.

    Raises:
        ValueError: ``correction`` is unknown, or as ``vtrace``.

    """
    if correction not in ("v_trace", "one_step", "epsilon", "none"):
        raise ValueError(f"correction must be v_trace, one_step, epsilon or none, got {correction!r}")
    log_rhos = target_log_probs.detach() - behaviour_log_probs
    if trace_mask is not None:
        # The contents of a masked row may not be finite.
        log_rhos = log_rhos.masked_fill(~trace_mask, 0.0)
    corrects_values = correction == "v_trace"
    vs, pg_advantages = vtrace(
        log_rhos=log_rhos if corrects_values else torch.zeros_like(log_rhos),
        discounts=discounts,
        rewards=rewards,
        values=values,
        bootstrap_value=bootstrap_value,
        trace_mask=trace_mask,
        # A threshold below 1 would also shrink ratios of 1, which need no correction.
        clip_rho_threshold=clip_rho_threshold if corrects_values else 1.0,
        clip_c_threshold=clip_c_threshold if corrects_values else 1.0,
        clip_pg_rho_threshold=clip_pg_rho_threshold if corrects_values else 1.0,
        lambda_=lambda_,
        q_estimate=q_estimate,
    )
    if correction == "one_step":
        pg_advantages = pg_advantages * log_rhos.exp().clamp(max=clip_pg_rho_threshold)
    # The gradient becomes pi / (pi + epsilon) times that of log pi: it vanishes where the policy has left the action behind.
    policy_log_probs = torch.log(target_log_probs.exp() + log_epsilon) if correction == "epsilon" else target_log_probs
    return CorrectedTargets(vs, pg_advantages, policy_log_probs)
