"""Targets of values: V-trace and the corrections of Table 2 (IMPALA, arXiv:1802.01561), and Retrace (DiCE, arXiv:2106.00707, eq. 2).

T agent steps of B unrolls, time-major ``[T, B]``; ``s`` and ``t`` count agent steps as in the papers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from herd.algorithms.shapes import check_rows

if TYPE_CHECKING:
    from herd.components.losses import VTraceSettings


def scan_back(added: Tensor, factors: Tensor, last: Tensor) -> Tensor:
    """``e_t = added_t + factors_t e_{t+1}`` with ``e_T = last``: e_0 .. e_{T-1}, [T, ...], in log2(T) rounds instead of T steps.

    By doubling (Hillis and Steele, 1986): after round n, ``e_t`` holds the terms of the 2^n steps from t on, and the factor of step t the
    product of theirs. A factor of 0 ends the sum exactly. Sums are in another order than step by step: results differ by rounding.

    Args:
        added: [T, ...], T >= 1.
        factors: [T, ...].
        last: [...].
    """
    errors = torch.cat([added[:-1], torch.addcmul(added[-1], factors[-1], last).unsqueeze(0)])
    num_steps = len(errors)
    reach = 1
    while reach < num_steps:
        errors = torch.cat([torch.addcmul(errors[:-reach], factors[: num_steps - reach], errors[reach:]), errors[-reach:]])
        # Mask of the steps whose sum still changes in the next round.
        factors = factors[: max(num_steps - 2 * reach, 0)] * factors[reach : max(num_steps - reach, reach)]
        reach *= 2
    return errors


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
    q_estimate: str = "v_trace",
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
    _check_ratios(log_rhos)
    check_rows(log_rhos.shape, discounts=discounts, rewards=rewards, values=values, trace_mask=trace_mask)
    check_rows(log_rhos.shape[1:], bootstrap_value=bootstrap_value)
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


class CorrectedTargets(NamedTuple):
    """The results of a correction that the loss needs, each ``[T, B]``."""

    vs: Tensor
    """Targets of the values; no gradient."""
    pg_advantages: Tensor
    """Weights of the policy gradient, importance weight included; no gradient."""
    policy_log_probs: Tensor
    """``log pi(a_t|x_t)``, or ``log(pi(a_t|x_t) + epsilon)``; carries the gradient of ``target_log_probs``."""


def corrected_targets(
    settings: VTraceSettings,
    *,
    behaviour_log_probs: Tensor,
    target_log_probs: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    trace_mask: Tensor | None = None,
) -> CorrectedTargets:
    """Compute targets and advantages with one of the corrections. The policy gradient is ``pg_advantages * grad policy_log_probs``.

    - ``none``: the data is treated as on-policy. All ratios are 1, so the targets are n-step returns (eq. 2) and no threshold applies.
    - ``epsilon``: as ``none``, with ``log(pi + log_epsilon)`` in the policy gradient.
    - ``one_step``: targets as ``none``; the advantage is multiplied by its own importance weight, clipped at ``clip_pg_rho_threshold``.
    - ``v_trace``: section 4.

    ``lambda_``, ``q_estimate`` and ``trace_mask`` act on all four. ``behaviour_log_probs`` and ``target_log_probs`` are the
    log-probabilities of the taken actions, ``[T, B]``; the other tensors are those of ``vtrace``.
    """
    log_rhos = target_log_probs.detach() - behaviour_log_probs
    if trace_mask is not None:
        # The contents of a masked row may not be finite.
        log_rhos = log_rhos.masked_fill(~trace_mask, 0.0)
    corrects_values = settings.correction == "v_trace"
    vs, pg_advantages = vtrace(
        log_rhos=log_rhos if corrects_values else torch.zeros_like(log_rhos),
        discounts=discounts,
        rewards=rewards,
        values=values,
        bootstrap_value=bootstrap_value,
        trace_mask=trace_mask,
        # A threshold below 1 would also shrink ratios of 1, which need no correction.
        clip_rho_threshold=settings.clip_rho_threshold if corrects_values else 1.0,
        clip_c_threshold=settings.clip_c_threshold if corrects_values else 1.0,
        clip_pg_rho_threshold=settings.clip_pg_rho_threshold if corrects_values else 1.0,
        lambda_=settings.lambda_,
        q_estimate=settings.q_estimate,
    )
    if settings.correction == "one_step":
        pg_advantages = pg_advantages * log_rhos.exp().clamp(max=settings.clip_pg_rho_threshold)
    # The gradient becomes pi / (pi + epsilon) times that of log pi: it vanishes where the policy has left the action behind.
    is_epsilon = settings.correction == "epsilon"
    policy_log_probs = torch.log(target_log_probs.exp() + settings.log_epsilon) if is_epsilon else target_log_probs
    return CorrectedTargets(vs, pg_advantages, policy_log_probs)


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
    bootstrap: str = "expected",
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
    _check_ratios(log_rhos)
    check_rows(log_rhos.shape, discounts=discounts, rewards=rewards, q_values=q_values, next_values=next_values, trace_mask=trace_mask)
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


def _check_ratios(log_rhos: Tensor) -> None:
    if log_rhos.ndim != 2 or len(log_rhos) == 0:
        raise ValueError(f"log_rhos must be [T, B] with T >= 1, got {list(log_rhos.shape)}")
