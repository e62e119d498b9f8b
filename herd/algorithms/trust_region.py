"""LASER's trust region: "Off-Policy Actor-Critic with Shared Experience Replay" (arXiv:1909.11583), sections 2.3 and 4.

V-trace with clipped ratios learns the values of an implied policy between the trained one and the one that acted (Proposition 1). Where
that lies far from the trained policy, targets are biased, and so is the policy gradient (Proposition 2). A step is relevant where the
divergence stays below a threshold; eq. (8) ends the trace at any other, and no loss counts it.

The gate uses whole distributions, never the action that was taken, which would bias the accepted steps (section 4.3). It also applies to
online steps, as in Algorithm 1, whose mask covers the whole batch. Online steps come from actors that are a few updates behind, so nearly
all of them pass. If policies change so fast that they do not, their bias is the same as that of replayed steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from herd.algorithms.distributions import Applied, AppliedCategorical

if TYPE_CHECKING:
    from herd.components.losses import VTraceSettings


class Gate(NamedTuple):
    """Which steps are learned from; neither tensor carries a gradient."""

    accepted: Tensor
    """bool [T, B]: valid and relevant. As V-trace's ``trace_mask`` this is eq. (8)."""
    divergence: Tensor | None
    """[T, B] in nats, 0 at invalid steps; None without a trust region."""


@torch.no_grad()
def gate(settings: VTraceSettings, *, target: Applied, behaviour: Applied, row_valid: Tensor) -> Gate:
    """The steps whose ``KL(pi || implied)``, or ``KL(pi || mu)``, is below ``trust_region_threshold``, b in the paper.

    Args:
        settings: ``trust_region`` says which divergence, and ``none`` accepts every valid step. A divergence of exactly
            ``trust_region_threshold`` is rejected.
        target: ``pi(.|x_t)``, ``[T, B]``, at the temperature of the row where there is one.
        behaviour: ``mu(.|x_t)``, ``[T, B]``, at the same temperature.
        row_valid: ``[T, B]`` bool; the contents of an invalid row may not be finite.

    Raises:
        ValueError: ``implied`` without one categorical: only this has a closed form.

    """
    if settings.trust_region == "none":
        return Gate(row_valid, None)
    reference = behaviour
    if settings.trust_region == "implied":
        if not isinstance(target, AppliedCategorical) or not isinstance(behaviour, AppliedCategorical):
            raise ValueError("trust_region implied needs one discrete action")
        reference = target.implied(behaviour, settings.clip_rho_threshold)
    divergence = target.kl(reference).masked_fill(~row_valid, 0.0)
    return Gate(row_valid & (divergence < settings.trust_region_threshold), divergence)
