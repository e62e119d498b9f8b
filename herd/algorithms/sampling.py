"""The categorical policy over A discrete actions: sampling, log-probabilities, entropy and temperature."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def sample_actions(logits: Tensor, generator: torch.Generator | None, inverse_temperature: Tensor | None = None) -> Tensor:
    """Sample one action per row of ``logits`` ``[..., A]`` (any float dtype), int64 ``[...]``, distributed as ``softmax(logits)``.

    With ``inverse_temperature`` ``[...]``, one per row, distributed as ``softmax(logits * inverse_temperature)``; see `tempered`.

    The Gumbel trick: ``argmax_a(l_a - log e_a)`` with exponential ``e_a``, without normalisation and search. ``generator`` is on the
    device of ``logits``; None uses torch's global generator.
    """
    # In bfloat16 the noise would have 8 bits and many ties; the sum is computed at least in float32.
    noise = torch.empty_like(logits, dtype=torch.promote_types(logits.dtype, torch.float32)).exponential_(generator=generator)
    if inverse_temperature is not None:
        logits = tempered(logits, inverse_temperature)
    return (logits - noise.log_()).argmax(dim=-1)


def tempered(logits: Tensor, inverse_temperature: Tensor) -> Tensor:
    """Logits of ``softmax(logits / tau)``: finite logits ``[..., A]``, 1/tau ``[...]``, result ``[..., A]`` in float32 at least.

    1/tau = 0 is exactly uniform. The product is never computed in bfloat16: around 50, its 8 bits give steps of a quarter of a nat.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return logits.to(dtype) * inverse_temperature.to(dtype).unsqueeze(-1)


def log_prob(logits: Tensor, actions: Tensor) -> Tensor:
    """``log softmax(logits)[a]``: logits ``[..., A]``, actions int64 ``[...]``, result ``[...]``."""
    return logits.log_softmax(dim=-1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def entropy(logits: Tensor) -> Tensor:
    """``-sum_a pi(a) log pi(a)`` in nats of ``pi = softmax(logits)``: logits ``[..., A]``, result ``[...]``."""
    log_probs = logits.log_softmax(dim=-1)
    return -(log_probs.exp() * log_probs).sum(dim=-1)
