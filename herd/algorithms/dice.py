"""DiCE's losses: "An Entropy Regularization Free Mechanism for Policy-based Reinforcement Learning" (arXiv:2106.00707).

T agent steps of B unrolls, A actions, time-major. Row t holds ``x_t``, the action taken there and what that step returned; advantages
and values have one row more, ``x_T``, to bootstrap from.

What the paper leaves open, and how it is read here:

- *Centring.* ``Q = V + A`` is a plain sum (sections 2 and 3.1, algorithm 3): A is not made mean-free. V is fitted to a target of its own
  (eq. 5), which tells V and A apart, and no policy ``softmax(A / tau)`` sees a constant added to A. The true A has mean 0 under the
  policy averaged over temperatures, not under that of one unroll, so centring by one tau would be wrong besides.
- *Gradients.* All targets and the policy gradient's weight are constants. V learns from eq. (5); V and A learn from eq. (3), whose
  ``grad Q`` is ``grad V + grad A``; A alone learns from eq. (8), where pi's probabilities are factors and carry none.
- *Losses.* Eqs. (3) and (5) print directions without a factor 2: losses are half of squares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from herd.algorithms.actor_critic import correct
from herd.algorithms.returns import retrace
from herd.algorithms.shapes import check_rows

if TYPE_CHECKING:
    from herd.algorithms.distributions import AppliedCategorical
    from herd.algorithms.trust_region import Gate
    from herd.components.losses.dice import DiceSettings

ENTROPY_ABLATION_COST = 1.0
"""Section 4.3; used with scalings of 10 for policy and Q."""


class DiceTerms(NamedTuple):
    """Sums over the accepted rows, on the device of the values, so that the terms of parts of B add up; only ``total`` carries a gradient.

    A row is accepted where it is valid and within the trust region, if there is one.
    """

    total: Tensor
    """``policy_cost * policy + baseline_cost * value + q_cost * q``; the ``entropy`` ablation subtracts ``entropy``."""
    policy: Tensor
    """``-sum rho * advantage * (A_a - sum_b pi_b A_b)``: its gradient is that of ``-tau J`` (eq. 8)."""
    value: Tensor
    """``1/2 sum (V~ - V(x))^2``."""
    q: Tensor
    """``1/2 sum (Q~ - Q(x, a))^2``."""
    entropy: Tensor
    """Entropy in nats of the target policy at the row's temperature; over the accepted rows that have the bonus."""
    rhos: Tensor
    """``min(rho-bar, pi/mu)``, [T, B], of the valid rows, 0 at others."""
    targets: Tensor
    """``V~``, [T, B]: what the values are fitted to. At a row that is not accepted it is V(x)."""
    gate: Gate
    """Which rows are accepted, and how far policies are apart; both at the row's temperature."""


def policy_surrogate(advantages: Tensor, actions: Tensor, policy: Tensor) -> Tensor:
    """``A_a - sum_b pi_b A_b`` with constant pi: its gradient is ``tau * grad log pi(a)`` for ``pi = softmax(A / tau)``.

    Section 3.2's ``(1 - pi) grad v`` with ``v = A``. Unlike ``log pi`` times tau it is finite for every tau, infinite ones included.

    Args:
        advantages: ``[..., A]`` with gradient.
        actions: int64 ``[...]``.
        policy: pi, ``[..., A]``, without gradient.

    """
    taken = advantages.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    return taken - (policy * advantages).sum(dim=-1)


def dice_loss(
    *,
    advantages: Tensor,
    target: AppliedCategorical,
    next_target: AppliedCategorical,
    behaviour: AppliedCategorical,
    values: Tensor,
    actions: Tensor,
    rewards: Tensor,
    terminated: Tensor,
    row_valid: Tensor,
    discount: float,
    settings: DiceSettings,
    has_entropy_bonus: Tensor | None = None,
) -> DiceTerms:
    """Compute the losses of V (V-trace) and Q (Retrace) and the policy gradient times tau, over the accepted rows.

    ``settings.correction`` other than ``v_trace`` counts the data as on-policy in Retrace too.

    Args:
        advantages: ``A(x_0, .) .. A(x_T, .)`` of the network being trained, ``[T + 1, B, A]`` float32 with gradient (float64
            throughout works too).
        target: ``softmax(A / tau)`` of rows 0..T-1, ``[T, B]``, at the temperature that each row's action was drawn with, so that ratios
            compare like with like.
        next_target: of rows 1..T, each at the temperature of the step that led to it.
        behaviour: the policy that acted, ``[T, B]``.
        values: ``V(x_0) .. V(x_T)``, ``[T + 1, B]`` with gradient.
        actions: ``[T, B]``.
        rewards: already shaped, ``[T, B]``.
        terminated: ``[T, B]`` bool; nothing after such a step counts for it. A truncated step is no special case, as in
            `actor_critic_loss`.
        row_valid: ``[T, B]`` bool; an invalid row only reset the game. It enters no term and lets no trace pass.
        discount: gamma, per agent step.
        settings: of the loss.
        has_entropy_bonus: ``[B]`` bool, the unrolls with the ablation's entropy bonus. None: all.

    Raises:
        ValueError: a shape or dtype does not fit.

    """
    if advantages.ndim != 3 or len(advantages) < 2:
        raise ValueError(f"advantages must be [T + 1, B, A] with T >= 1, got {list(advantages.shape)}")
    check_rows(advantages.shape[:2], values=values)
    check_rows(advantages[1:].shape[:2], actions=actions, rewards=rewards, terminated=terminated, row_valid=row_valid)
    actions = actions.long()
    discounts = discount * (~terminated).to(values.dtype)
    corrected = correct(
        target=target,
        behaviour=behaviour,
        actions=actions,
        rewards=rewards,
        values=values,
        discounts=discounts,
        row_valid=row_valid,
        settings=settings,
    )
    log_probs, behaviour_log_probs, gated, vs, pg_advantages, policy_log_probs = corrected
    target_log_probs = log_probs.detach()  # pi is a factor of the policy gradient; its own gradient is the surrogate's
    accepted = gated.accepted
    # 1, but for the epsilon correction: the gradient of log(pi + epsilon) is pi / (pi + epsilon) times that of log pi.
    pg_advantages = pg_advantages * (target_log_probs - policy_log_probs.detach()).exp()

    q_values = values[:-1] + advantages[:-1].gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    log_rhos = target_log_probs - behaviour_log_probs
    corrects_values = settings.correction == "v_trace"
    q_targets = retrace(
        log_rhos=log_rhos if corrects_values else torch.zeros_like(log_rhos),
        discounts=discounts,
        rewards=rewards,
        q_values=q_values.detach(),
        next_values=_next_values(advantages, values, next_target),
        trace_mask=accepted,
        clip_c_threshold=settings.clip_c_threshold if corrects_values else 1.0,
        lambda_=settings.lambda_,
        bootstrap=settings.retrace_bootstrap,
    )

    # At a row that is not accepted the weight is 0 and each target is what the network says, so the first three sums are masked already.
    policy = -(pg_advantages * policy_surrogate(advantages[:-1], actions, target.probabilities().detach())).sum()
    value = 0.5 * (vs - values[:-1]).square().sum()
    q = 0.5 * (q_targets - q_values).square().sum()
    entropy = target.entropy().masked_fill(~(accepted if has_entropy_bonus is None else accepted & has_entropy_bonus), 0.0).sum()
    total = settings.policy_cost * policy + settings.baseline_cost * value + settings.q_cost * q
    if settings.ablation == "entropy":
        total = total - ENTROPY_ABLATION_COST * entropy

    rhos = log_rhos.exp().clamp(max=settings.clip_rho_threshold)
    rhos = rhos.masked_fill(~row_valid, 0.0)
    return DiceTerms(total, policy.detach(), value.detach(), q.detach(), entropy.detach(), rhos, vs, gated)


@torch.no_grad()
def _next_values(advantages: Tensor, values: Tensor, next_target: AppliedCategorical) -> Tensor:
    """``E_pi Q(x_{t+1}, .)``, ``[T, B]``."""
    return values[1:] + (next_target.probabilities() * advantages[1:]).sum(dim=-1)
