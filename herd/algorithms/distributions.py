"""Distributions of actions as they act: at a temperature, and without the actions that a mask forbids.

The temperature comes first, then the mask: minus infinity times an inverse temperature of 0 is not a number. A actions.
"""

from __future__ import annotations

import math
from typing import Protocol, Self

import torch
from torch import Tensor


class Applied(Protocol):
    """The policy of every row, with any leading dimensions; what losses and actors ask of any distribution."""

    def sample(self, generator: torch.Generator | None) -> Tensor:
        """Draw an action [..., *shape] for each row, never a masked one.

        ``generator`` is on the parameters' device; None uses torch's global one.
        """

    def mode(self) -> Tensor:
        """Return the most probable action of each row, [..., *shape]."""

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the logarithm of the probability, or of its density, of ``actions`` [..., *shape]: [...], with gradient."""

    def entropy(self) -> Tensor:
        """Return the entropy in nats, [...]."""

    def kl(self, other: Self) -> Tensor:
        """Return ``KL(self || other)`` in nats, [...]. It is never below 0, even with rounding errors."""


class AppliedCategorical:
    """One of A actions: ``softmax(logits)`` over those that the mask allows."""

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        """``logits`` [..., A], finite, of any float dtype; ``mask`` bool [..., A], the allowed actions, at least one in each row."""
        self._mask = mask
        self._logits = logits if mask is None else logits.masked_fill(~mask, -math.inf)
        self._log_policy: Tensor | None = None

    @property
    def log_policy(self) -> Tensor:
        """``log softmax(logits)``, [..., A]; minus infinity where masked."""
        if self._log_policy is None:
            with torch.enable_grad():  # the first caller may need no gradient, but a later one may
                self._log_policy = self._logits.log_softmax(dim=-1)
        return self._log_policy

    def probabilities(self) -> Tensor:
        """``softmax(logits)``, [..., A]; 0 where masked."""
        return self._logits.softmax(dim=-1)

    @torch.no_grad()
    def sample(self, generator: torch.Generator | None) -> Tensor:
        """See `Applied`: int64 [...].

        The Gumbel trick: ``argmax_a(l_a - log e_a)`` with exponential ``e_a``, without normalisation and search.
        """
        # In bfloat16 the noise would have 8 bits and many ties; the sum is computed at least in float32.
        dtype = torch.promote_types(self._logits.dtype, torch.float32)
        noise = torch.empty_like(self._logits, dtype=dtype).exponential_(generator=generator)
        scores = self._logits - noise.log_()
        if self._mask is not None:
            scores.masked_fill_(~self._mask, -math.inf)  # also where noise of 0 made it no number
        return scores.argmax(dim=-1)

    def mode(self) -> Tensor:
        """See `Applied`: int64 [...]."""
        return self._logits.argmax(dim=-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        """See `Applied`; ``actions`` are integers."""
        return self.log_policy.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """See `Applied`."""
        return -(self.log_policy.exp() * self._where_allowed(self.log_policy)).sum(dim=-1)

    def kl(self, other: AppliedCategorical) -> Tensor:
        """See `Applied`."""
        differences = self._where_allowed(self.log_policy - other.log_policy)
        return (self.log_policy.exp() * differences).sum(dim=-1).clamp(min=0.0)

    def implied(self, behaviour: AppliedCategorical, clip_rho_threshold: float) -> AppliedCategorical:
        """Return the policy whose values V-trace learns (LASER, arXiv:1909.11583, eq. 3).

        ``min(rho-bar mu, pi) / sum_b min(rho-bar mu, pi)``, with this policy as pi and ``behaviour`` as mu.
        """
        unnormalised = torch.minimum(behaviour.log_policy + math.log(clip_rho_threshold), self.log_policy)
        return AppliedCategorical(unnormalised, self._mask)

    def _where_allowed(self, logarithms: Tensor) -> Tensor:
        """Return the factors of probabilities, 0 where these are 0: the product with minus infinity would be no number."""
        return logarithms if self._mask is None else logarithms.masked_fill(~self._mask, 0.0)


def tempered(parameters: Tensor, inverse_temperature: Tensor) -> Tensor:
    """Logits of ``softmax(logits / tau)``: finite ``parameters`` [..., A], 1/tau [...], result [..., A] in float32 at least.

    1/tau = 0 is exactly uniform. The product is never computed in bfloat16: around 50, its 8 bits give steps of a quarter of a nat.
    """
    dtype = torch.promote_types(parameters.dtype, torch.float32)
    return parameters.to(dtype) * inverse_temperature.to(dtype).unsqueeze(-1)
