"""The gated transformer of arXiv:1910.06764 (GTrXL) with the relative positions of Transformer-XL, arXiv:1901.02860.

Shapes: T rows, B unrolls, I input features, D numbers of an embedding, L blocks, M steps of memory, G heads of d = D / G numbers,
S = L M D + 1 numbers of a state.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from herd.components.cores.api import Core
from herd.networks.layers import PLAIN, Dense, LayerDesign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.components.cores.gtrxl import GTrXLSettings

GATE_BIAS = 2.0
"""Of the gates at the start: blocks begin close to the identity, without which training is unstable (section 3.2 and figure 6)."""
MLP_FACTOR = 4
"""Hidden units of a block's second half, per number of the embedding."""


class GTrXLCore(Core):
    """GTrXL over rows, float32. Every row attends to itself and to the last M rows of its episode.

    The state is what the L blocks got as inputs at the last M steps, oldest first, [L, M, D], then the number of these steps that belong
    to the episode. No gradient flows into it.
    """

    def __init__(self, settings: GTrXLSettings, num_inputs: int, design: LayerDesign = PLAIN) -> None:
        super().__init__(settings.size, settings.state_size())
        self._memory_shape = settings.layers, settings.memory, settings.size
        self.embedding = Dense(num_inputs, settings.size, gain=1.0, initialization=design.initialization)
        self.blocks = nn.ModuleList(_Block(settings, design) for _ in range(settings.layers))

    def forward(
        self,
        inputs: Tensor,
        reset: Tensor,
        state: Tensor,
        *,
        num_tail_rows: int = 0,
        reset_rows: Sequence[int] | None = None,  # noqa: ARG002  rows are computed together, whatever the resets
    ) -> tuple[Tensor, Tensor]:
        """See `Core`."""
        num_rows, batch = reset.shape
        _, length, _ = self._memory_shape
        state = torch.where(reset[0].unsqueeze(-1), 0.0, state)
        memory = state[:, :-1].view(batch, *self._memory_shape)
        count = state[:, -1]
        # Which episode each remembered step and row belongs to: 0 is the one before row 0, -1 none.
        slots = torch.arange(length, device=state.device)
        remembered = torch.where(slots.unsqueeze(1) >= length - count, 0, -1)
        episodes = torch.cat([remembered, reset.long().cumsum(0) - reset[0].long()])
        rows, keys = torch.arange(num_rows, device=state.device), torch.arange(length + num_rows, device=state.device)
        distance = length + rows.unsqueeze(1) - keys
        is_seen = ((distance >= 0) & (distance <= length)).unsqueeze(-1) & (episodes[length:].unsqueeze(1) == episodes)
        distance = distance.clamp(0, length)

        done = num_rows - num_tail_rows
        x = self.embedding(inputs)
        kept = []
        for block, old in zip(self.blocks, memory.unbind(1), strict=True):
            context = torch.cat([old.transpose(0, 1), x])
            kept.append(context[done : done + length].detach().transpose(0, 1))
            x = block(x, context, is_seen, distance)
        newest = episodes[length + done - 1]
        is_kept = (episodes[done : done + length] == newest) & (newest >= 0)
        state = torch.where(is_kept.t().reshape(batch, 1, length, 1), torch.stack(kept, dim=1), 0.0)
        return x, torch.cat([state.flatten(1), is_kept.sum(0, dtype=state.dtype).unsqueeze(1)], dim=1)


class _Block(nn.Module):
    """Attention and a two-layer network, each behind a layer norm and joined to its input by a gate (section 3.1, equations 5 to 10)."""

    def __init__(self, settings: GTrXLSettings, design: LayerDesign) -> None:
        super().__init__()
        size, self._heads = settings.size, settings.heads
        start = design.initialization
        self.norm_attention, self.norm_mlp = nn.LayerNorm(size), nn.LayerNorm(size)
        self.query, self.key, self.value, self.position, self.attended = (
            Dense(size, size, gain=1.0, initialization=start) for _ in range(5)
        )
        self.content_bias, self.position_bias = (nn.Parameter(torch.zeros(settings.heads, size // settings.heads)) for _ in range(2))
        self.hidden = Dense(size, MLP_FACTOR * size, initialization=start)
        self.out = Dense(MLP_FACTOR * size, size, gain=1.0, initialization=start)
        self.gate_attention, self.gate_mlp = _Gate(size), _Gate(size)
        self.register_buffer("waves", _waves(settings.memory + 1, size), persistent=False)
        self.waves: Tensor

    def forward(self, x: Tensor, context: Tensor, is_seen: Tensor, distance: Tensor) -> Tensor:
        """Rows x [T, B, D] attend to context [M + T, B, D] where ``is_seen``, bool [T, M + T, B]; ``distance`` int64 [T, M + T], 0..M."""
        x = self.gate_attention(x, torch.relu(self._attention(x, context, is_seen, distance)))
        gated: Tensor = self.gate_mlp(x, torch.relu(self.out(torch.relu(self.hidden(self.norm_mlp(x))))))
        return gated

    def _attention(self, x: Tensor, context: Tensor, is_seen: Tensor, distance: Tensor) -> Tensor:
        context = self.norm_attention(context)
        query = self._split(self.query(context[-len(x) :]))
        key, value = self._split(self.key(context)), self._split(self.value(context))
        position = self._split(self.position(self.waves.to(x.dtype)))  # [M + 1, G, d]
        by_content = torch.einsum("tbgd,kbgd->bgtk", query + self.content_bias, key)
        by_distance = torch.einsum("tbgd,mgd->bgtm", query + self.position_bias, position)
        by_position = by_distance.gather(3, distance.expand(*by_distance.shape[:2], -1, -1))
        scores = (by_content + by_position) / math.sqrt(query.shape[-1])
        weights = scores.masked_fill(~is_seen.movedim(2, 0).unsqueeze(1), -math.inf).softmax(-1)
        attended: Tensor = self.attended(torch.einsum("bgtk,kbgd->tbgd", weights, value).flatten(2))
        return attended

    def _split(self, numbers: Tensor) -> Tensor:
        return numbers.view(*numbers.shape[:-1], self._heads, -1)


class _Gate(nn.Module):
    """A GRU's gate: r, z = sigmoid(W y + U x), z's less a bias; g = (1 - z) x + z tanh(W y + U (r x))."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.of_new = nn.Parameter(torch.empty(3 * size, size))
        self.of_old = nn.Parameter(torch.empty(3 * size, size))
        self.bias = nn.Parameter(torch.full((size,), GATE_BIAS))
        for weight in (self.of_new, self.of_old):
            for gate in weight.data.chunk(3):
                nn.init.xavier_uniform_(gate)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """x, y and the result [T, B, D]."""
        size = x.shape[-1]
        new_reset, new_update, new = nn.functional.linear(y, self.of_new).chunk(3, dim=-1)
        old_reset, old_update = nn.functional.linear(x, self.of_old[: 2 * size]).chunk(2, dim=-1)
        take = torch.sigmoid(new_update + old_update - self.bias)
        candidate = torch.tanh(new + nn.functional.linear(torch.sigmoid(new_reset + old_reset) * x, self.of_old[2 * size :]))
        return torch.lerp(x, candidate, take)


def _waves(num_distances: int, size: int) -> Tensor:
    """Sines, then cosines of each distance, float32 [M + 1, D], at wavelengths from 2 pi to 20,000 pi."""
    rates = torch.exp(torch.arange(0, size, 2) * (-math.log(10_000.0) / size))
    angles = torch.arange(num_distances).unsqueeze(1) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :size]
