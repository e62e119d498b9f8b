"""Distributions of actions as they act: at a temperature, and without the actions that a mask forbids.

The temperature comes first, then the mask: minus infinity times an inverse temperature of 0 is not a number. A discrete actions, or N
numbers in an action.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

FORBIDDEN = -1e30
"""Logit of a forbidden action: its probability is exactly 0, and yet products and differences of logarithms stay numbers."""
_LARGEST_TANH = 1.0 - 2.0**-24
"""The largest float32 below 1: squashed actions stay inside the bounds, where their density is finite."""
_LOG_2PI = math.log(2.0 * math.pi)
_LOG_2 = math.log(2.0)


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
    """One of A actions: ``softmax(logits)`` over those that the mask allows, or a mixture of that and the uniform policy."""

    def __init__(self, logits: Tensor, mask: Tensor | None = None, *, uniform_share: float = 0.0) -> None:
        """``logits`` [..., A], finite, of any float dtype; ``mask`` bool [..., A], the allowed actions.

        A row that allows nothing belongs to no game, such as one before a run's first: everything is allowed there. ``uniform_share`` is
        the weight, below 1, of the uniform policy over the allowed actions.
        """
        self._mask = None if mask is None else mask | ~mask.any(dim=-1, keepdim=True)
        self._logits = logits if self._mask is None else logits.masked_fill(~self._mask, FORBIDDEN)
        if uniform_share:
            self._logits = _mixed_with_uniform(self._logits, self._mask, uniform_share)
        self._log_policy: Tensor | None = None

    @property
    def log_policy(self) -> Tensor:
        """``log softmax(logits)``, [..., A]; about `FORBIDDEN` where masked."""
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
        return -(self.log_policy.exp() * self.log_policy).sum(dim=-1)

    def kl(self, other: AppliedCategorical) -> Tensor:
        """See `Applied`."""
        return (self.log_policy.exp() * (self.log_policy - other.log_policy)).sum(dim=-1).clamp(min=0.0)

    def implied(self, behaviour: AppliedCategorical, clip_rho_threshold: float) -> AppliedCategorical:
        """Return the policy whose values V-trace learns (LASER, arXiv:1909.11583, eq. 3).

        ``min(rho-bar mu, pi) / sum_b min(rho-bar mu, pi)``, with this policy as pi and ``behaviour`` as mu.
        """
        unnormalised = torch.minimum(behaviour.log_policy + math.log(clip_rho_threshold), self.log_policy)
        return AppliedCategorical(unnormalised, self._mask)


class AppliedNormal:
    """N independent numbers, each ``mean + deviation z`` with a standard normal z, or the tanh of that.

    Divergences and ratios of probabilities are those of the normals: a bijection such as tanh changes neither.
    """

    def __init__(self, mean: Tensor, log_deviation: Tensor, *, is_squashed: bool = False) -> None:
        """``mean``, ``log_deviation`` [..., N], finite, float32 at least. ``is_squashed``: actions are tanh of the normal, in (-1, 1)."""
        self._mean = mean
        self._log_deviation = log_deviation
        self._is_squashed = is_squashed

    @torch.no_grad()
    def sample(self, generator: torch.Generator | None) -> Tensor:
        """See `Applied`: [..., N]."""
        noise = torch.empty_like(self._mean).normal_(generator=generator)
        return self._squashed(self._mean + self._log_deviation.exp() * noise)

    def mode(self) -> Tensor:
        """Return the mean, or its tanh, which is the median: [..., N]."""
        return self._squashed(self._mean.detach())

    def log_prob(self, actions: Tensor) -> Tensor:
        """See `Applied`: logarithm of the density of ``actions`` [..., N]."""
        drawn, log_slope = actions, torch.zeros_like(actions)
        if self._is_squashed:
            drawn = actions.clamp(-_LARGEST_TANH, _LARGEST_TANH).atanh()
            log_slope = _log_slope_of_tanh(drawn)
        z = (drawn - self._mean) * (-self._log_deviation).exp()
        return (-0.5 * (z.square() + _LOG_2PI) - self._log_deviation - log_slope).sum(dim=-1)

    def entropy(self) -> Tensor:
        """See `Applied`: of the density.

        Of squashed numbers, ``H(tanh x) = H(x) + E log tanh'(x)``; the expectation has no closed form and is a quadrature.
        """
        entropy = self._log_deviation + 0.5 * (1.0 + _LOG_2PI)
        if self._is_squashed:
            nodes, weights = _quadrature(self._mean.dtype, self._mean.device)
            points = self._mean.unsqueeze(-1) + self._log_deviation.exp().unsqueeze(-1) * nodes
            entropy = entropy + (_log_slope_of_tanh(points) * weights).sum(dim=-1)
        return entropy.sum(dim=-1)

    def kl(self, other: AppliedNormal) -> Tensor:
        """See `Applied`."""
        log_ratio = self._log_deviation - other._log_deviation
        z = (self._mean - other._mean) * (-other._log_deviation).exp()
        # expm1(x) - x for the variances' ratio exp(x): without cancellation where the two are nearly equal.
        x = 2.0 * log_ratio
        return 0.5 * (x.expm1() - x + z.square()).sum(dim=-1).clamp(min=0.0)

    def _squashed(self, drawn: Tensor) -> Tensor:
        return drawn.tanh().clamp(-_LARGEST_TANH, _LARGEST_TANH) if self._is_squashed else drawn


class AppliedProduct:
    """Actions of N numbers in independent parts: each part draws one integer, or several continuous numbers."""

    def __init__(self, parts: Sequence[AppliedCategorical | AppliedNormal], places: Sequence[Sequence[int]]) -> None:
        """``places``: the numbers of an action that each part draws; together they are 0..N-1."""
        self._parts = parts
        self._places = places

    def sample(self, generator: torch.Generator | None) -> Tensor:
        """See `Applied`: [..., N], int64 if all parts are categorical, else float32."""
        return self._joined([part.sample(generator) for part in self._parts])

    def mode(self) -> Tensor:
        """See `Applied`: the most probable action of each part."""
        return self._joined([part.mode() for part in self._parts])

    def log_prob(self, actions: Tensor) -> Tensor:
        """See `Applied`."""
        # No index of a tensor here or below: on a GPU it would be copied there each time.
        numbers, log_probs = actions.unbind(dim=-1), []
        for part, places in zip(self._parts, self._places, strict=True):
            if isinstance(part, AppliedNormal):
                log_probs.append(part.log_prob(torch.stack([numbers[place] for place in places], dim=-1)))
                continue
            (number,) = (numbers[place] for place in places)
            # Beside continuous numbers an integer is a float, which was not checked on its way.
            last = part.log_policy.shape[-1] - 1
            log_probs.append(part.log_prob(number.clamp(0, last) if number.is_floating_point() else number))
        return torch.stack(log_probs).sum(dim=0)

    def entropy(self) -> Tensor:
        """See `Applied`."""
        return torch.stack([part.entropy() for part in self._parts]).sum(dim=0)

    def kl(self, other: AppliedProduct) -> Tensor:
        """See `Applied`."""
        pairs = zip(self._parts, other._parts, strict=True)
        return torch.stack([one.kl(another) for one, another in pairs]).sum(dim=0)  # type: ignore[arg-type]  # of one kind

    def _joined(self, drawn: Sequence[Tensor]) -> Tensor:
        numbers: dict[int, Tensor] = {}
        for part, places, each in zip(self._parts, self._places, drawn, strict=True):
            numbers |= zip(places, each.unbind(dim=-1) if isinstance(part, AppliedNormal) else [each], strict=True)
        is_integer = not any(isinstance(part, AppliedNormal) for part in self._parts)
        return torch.stack([numbers[place] if is_integer else numbers[place].float() for place in range(len(numbers))], dim=-1)


def _mixed_with_uniform(logits: Tensor, mask: Tensor | None, share: float) -> Tensor:
    """``log((1 - share) softmax(logits) + share / n)`` of n allowed actions, [..., A] in float32 at least; `FORBIDDEN` where masked."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    log_policy = logits.to(dtype).log_softmax(dim=-1) + math.log1p(-share)
    if mask is None:
        return torch.logaddexp(log_policy, log_policy.new_full((), math.log(share / logits.shape[-1])))
    uniform = (share / mask.sum(dim=-1, keepdim=True).to(dtype)).log()
    return torch.logaddexp(log_policy, uniform).masked_fill(~mask, FORBIDDEN)


@lru_cache(maxsize=8)
def _quadrature(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return 64 nodes and weights: ``E f(z)`` of a standard normal z is about ``sum w f(node)``.

    It is the trapezoidal rule. Its nodes are evenly spaced, so that they resolve the bend of ``log tanh'`` also where deviations are large.
    The error of an entropy is below 2e-6 nats up to a deviation of 4, and below 2e-4 at e^2, the largest of a policy; Gauss-Hermite with as
    many nodes has 2e-2 there.
    """
    nodes = np.linspace(-5.5, 5.5, 64)
    weights = np.exp(-0.5 * nodes**2)
    with torch.inference_mode(mode=False):  # they are kept, and other callers may need gradients
        return torch.from_numpy(nodes).to(device, dtype), torch.from_numpy(weights / weights.sum()).to(device, dtype)


def _log_slope_of_tanh(x: Tensor) -> Tensor:
    """``log(1 - tanh(x)^2)``, without cancellation at large ``x``."""
    return 2.0 * (_LOG_2 - x - F.softplus(-2.0 * x))


def tempered(parameters: Tensor, inverse_temperature: Tensor) -> Tensor:
    """Logits of ``softmax(logits / tau)``: finite ``parameters`` [..., A], 1/tau [...], result [..., A] in float32 at least.

    1/tau = 0 is exactly uniform. The product is never computed in bfloat16: around 50, its 8 bits give steps of a quarter of a nat.
    """
    dtype = torch.promote_types(parameters.dtype, torch.float32)
    return parameters.to(dtype) * inverse_temperature.to(dtype).unsqueeze(-1)
