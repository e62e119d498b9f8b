"""The categorical policy over A discrete actions: drawing from it, its log-probabilities and its entropy."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def sample_actions(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    """One action per row of ``logits`` ``[..., A]`` (any float dtype), int64 ``[...]``, distributed as ``softmax(logits)``.

    The Gumbel trick: ``argmax_a(l_a - log e_a)`` with exponential ``e_a``; no normalising, no search. ``generator`` lives on the
    device of ``logits``; None draws from torch's global one.
    """
    # In bfloat16 the noise would have 8 bits and tie; the sum is formed in float32 at least.
    noise = torch.empty_like(logits, dtype=torch.promote_types(logits.dtype, torch.float32)).exponential_(generator=generator)
    return (logits - noise.log_()).argmax(dim=-1)


def log_prob(logits: Tensor, actions: Tensor) -> Tensor:
    """``log softmax(logits)[a]``: logits ``[..., A]``, actions int64 ``[...]``, result ``[...]``."""
    return logits.log_softmax(dim=-1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def entropy(logits: Tensor) -> Tensor:
    """``-sum_a pi(a) log pi(a)`` in nats of ``pi = softmax(logits)``: logits ``[..., A]``, result ``[...]``."""
    log_probs = logits.log_softmax(dim=-1)
    return -(log_probs.exp() * log_probs).sum(dim=-1)
