"""Retrace: DiCE (arXiv:2106.00707), eq. (2), after Munos et al. (arXiv:1606.02647).

T agent steps of B unrolls, time-major ``[T, B]``; ``t`` counts agent steps as in the paper.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from herd.algorithms.scan import scan_back

RetraceBootstrap = Literal["expected", "taken"]


@torch.no_grad()
def retrace(
    *,
    log_rhos: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    q_values: Tensor,
    next_values: Tensor,
    trace_mask: Tensor | None = None,
    clip_c_threshold: float,
    lambda_: float = 1.0,
    bootstrap: RetraceBootstrap = "expected",
) -> Tensor:
    """Return targets of ``Q(x_t, a_t)``, ``[T, B]`` without gradient: eq. (2), computed recursively.

    There is no rho-bar: the ratio of the first step is not used, because its action is given.

    Args:
        log_rhos: ``log pi(a_t|x_t) - log mu(a_t|x_t)``, ``[T, B]`` float32 (float64 gives float64 targets).
        discounts: gamma, or 0 where the episode terminated at that step, ``[T, B]``, the dtype of ``log_rhos`` like all below.
        rewards: ``r_t``, ``[T, B]``.
        q_values: ``Q(x_t, a_t)`` of the actions taken, ``[T, B]``.
        next_values: ``sum_b pi(b|x_{t+1}) Q(x_{t+1}, b)``, ``[T, B]``: one row later than ``q_values``, up to the row after the unroll.
        trace_mask: ``[T, B]`` bool; False leaves ``Q(x_t, a_t)`` as it is, whatever the other tensors hold there, and lets nothing
            pass from later steps to earlier ones: the step before bootstraps from its ``next_values``. None keeps every step.
        clip_c_threshold: c-bar, how far corrections travel back. It may exceed 1: ``c_t <= pi/mu`` is all that convergence needs.
        lambda_: ``c_t = lambda min(c-bar, rho_t)``, as in the paper by Munos et al.
        bootstrap: ``expected``: ``delta_t = r_t + gamma E_pi Q(x_{t+1}, .) - Q(x_t, a_t)``, which converges to ``Q^pi``. ``taken``: as
            eq. (2) is printed, with ``Q(x_{t+1}, a_{t+1})``, which converges to Q of the behaviour policy. Where there is no next action
            (after the unroll, and at a masked step) it takes ``next_values`` too.

    Raises:
        ValueError: shapes do not agree, ``trace_mask`` is not bool, or ``bootstrap`` is unknown.

    """
    _check_shapes(log_rhos, discounts=discounts, rewards=rewards, q_values=q_values, next_values=next_values, trace_mask=trace_mask)
    if bootstrap not in ("expected", "taken"):
        raise ValueError(f"bootstrap must be expected or taken, got {bootstrap!r}")

    cs = lambda_ * log_rhos.exp().clamp(max=clip_c_threshold)
    following = next_values if bootstrap == "expected" else _values_of_taken_actions(q_values, next_values, trace_mask)
    deltas = rewards + discounts * following - q_values
    # c_{t+1}, not V-trace's c_t: the correction of step t + 1 is for the action taken there.
    traces = discounts[:-1] * cs[1:]
    if trace_mask is not None:
        # Filled, not multiplied: what a masked row holds may not even be finite.
        deltas = deltas.masked_fill(~trace_mask, 0.0)
        traces = traces.masked_fill(~(trace_mask[:-1] & trace_mask[1:]), 0.0)

    # Q~_t - Q_t = delta_t + gamma c_{t+1} (Q~_{t+1} - Q_{t+1}), from the last step back.
    nothing = torch.zeros_like(deltas[-1])
    return q_values + scan_back(deltas, torch.cat([traces, nothing.unsqueeze(0)]), nothing)


def _values_of_taken_actions(q_values: Tensor, next_values: Tensor, trace_mask: Tensor | None) -> Tensor:
    """``Q(x_{t+1}, a_{t+1})`` where an action was taken there, ``next_values`` where none was."""
    taken = q_values[1:] if trace_mask is None else torch.where(trace_mask[1:], q_values[1:], next_values[:-1])
    return torch.cat([taken, next_values[-1:]])


def _check_shapes(log_rhos: Tensor, **like_log_rhos: Tensor | None) -> None:
    if log_rhos.ndim != 2 or log_rhos.shape[0] == 0:
        raise ValueError(f"log_rhos must be [T, B] with T >= 1, got {list(log_rhos.shape)}")
    for name, tensor in like_log_rhos.items():
        if tensor is not None and tensor.shape != log_rhos.shape:
            raise ValueError(f"{name} must be {list(log_rhos.shape)} like log_rhos, got {list(tensor.shape)}")
    trace_mask = like_log_rhos.get("trace_mask")
    if trace_mask is not None and trace_mask.dtype != torch.bool:
        raise ValueError(f"trace_mask must be bool, got {trace_mask.dtype}")
