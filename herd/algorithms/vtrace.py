"""V-trace: IMPALA (arXiv:1802.01561), section 4.1 and appendix E.3.

T agent steps of B unrolls, time-major ``[T, B]``; ``s`` and ``t`` count agent steps as in the paper.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from herd.algorithms.scan import scan_back

QEstimate = Literal["v_trace", "value", "v_target"]


class VTraceReturns(NamedTuple):
    """What the actor-critic learns from; neither tensor carries a gradient."""

    vs: Tensor
    """Targets of the values, ``[T, B]``."""
    pg_advantages: Tensor
    """Clipped importance weight times ``q_s - V(x_s)``, ``[T, B]``."""


@torch.no_grad()
def vtrace(
    *,
    log_rhos: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    trace_mask: Tensor | None = None,
    clip_rho_threshold: float,
    clip_c_threshold: float,
    clip_pg_rho_threshold: float,
    lambda_: float = 1.0,
    q_estimate: QEstimate = "v_trace",
) -> VTraceReturns:
    """V-trace targets (eq. 1, by Remark 1's recursion) and policy-gradient advantages (section 4.2).

    Args:
        log_rhos: ``log pi(a_t|x_t) - log mu(a_t|x_t)``, ``[T, B]`` float32 (float64 gives float64 targets).
        discounts: gamma, or 0 where the episode terminated at that step, ``[T, B]``, the dtype of ``log_rhos`` like all below.
        rewards: ``r_t``, ``[T, B]``.
        values: ``V(x_t)``, ``[T, B]``.
        bootstrap_value: ``V(x_T)``, ``[B]``.
        trace_mask: ``[T, B]`` bool; False sets ``rho_t = c_t = 0``, whatever the other tensors hold there: ``v_t = V(x_t)``,
            nothing passes from later steps to earlier ones, and the advantage is 0. None keeps every step.
        clip_rho_threshold: rho-bar, which value function the targets converge to.
        clip_c_threshold: c-bar <= rho-bar, how fast they do.
        clip_pg_rho_threshold: clips the importance weight of the policy gradient.
        lambda_: Remark 2's extra discount, ``c_t = lambda min(c-bar, rho_t)``.
        q_estimate: ``v_trace``: ``q_s = r_s + gamma v_{s+1}`` (section 4.2); ``value``: ``q_s = r_s + gamma V(x_{s+1})`` (appendix E.3);
            ``v_target``: ``q_s = v_s`` (LASER's Algorithm 1, arXiv:1909.11583), whose difference to ``V(x_s)`` holds ``rho_s`` already.

    Raises:
        ValueError: shapes do not agree, ``trace_mask`` is not bool, or ``q_estimate`` is unknown.

    """
    _check_shapes(log_rhos, bootstrap_value, discounts=discounts, rewards=rewards, values=values, trace_mask=trace_mask)
    if q_estimate not in ("v_trace", "value", "v_target"):
        raise ValueError(f"q_estimate must be v_trace, value or v_target, got {q_estimate!r}")

    ratios = log_rhos.exp()
    rhos = ratios.clamp(max=clip_rho_threshold)
    cs = lambda_ * ratios.clamp(max=clip_c_threshold)

    next_values = torch.cat([values[1:], bootstrap_value.unsqueeze(0)])
    deltas = rhos * (rewards + discounts * next_values - values)
    traces = discounts * cs
    if trace_mask is not None:
        # Filled, not multiplied: what a masked row holds may not even be finite.
        deltas = deltas.masked_fill(~trace_mask, 0.0)
        traces = traces.masked_fill(~trace_mask, 0.0)

    # Remark 1: v_s - V(x_s) = delta_s V + gamma c_s (v_{s+1} - V(x_{s+1})), from the last step back.
    vs = values + scan_back(deltas, traces, torch.zeros_like(bootstrap_value))

    if q_estimate == "v_target":
        qs = vs
    else:
        next_targets = next_values if q_estimate == "value" else torch.cat([vs[1:], bootstrap_value.unsqueeze(0)])
        qs = rewards + discounts * next_targets
    pg_advantages = ratios.clamp(max=clip_pg_rho_threshold) * (qs - values)
    if trace_mask is not None:
        pg_advantages = pg_advantages.masked_fill(~trace_mask, 0.0)
    return VTraceReturns(vs, pg_advantages)


def _check_shapes(log_rhos: Tensor, bootstrap_value: Tensor, **like_log_rhos: Tensor | None) -> None:
    if log_rhos.ndim != 2 or log_rhos.shape[0] == 0:
        raise ValueError(f"log_rhos must be [T, B] with T >= 1, got {list(log_rhos.shape)}")
    for name, tensor in like_log_rhos.items():
        if tensor is not None and tensor.shape != log_rhos.shape:
            raise ValueError(f"{name} must be {list(log_rhos.shape)} like log_rhos, got {list(tensor.shape)}")
    if bootstrap_value.shape != log_rhos.shape[1:]:
        raise ValueError(f"bootstrap_value must be {list(log_rhos.shape[1:])}, got {list(bootstrap_value.shape)}")
    trace_mask = like_log_rhos.get("trace_mask")
    if trace_mask is not None and trace_mask.dtype != torch.bool:
        raise ValueError(f"trace_mask must be bool, got {trace_mask.dtype}")
