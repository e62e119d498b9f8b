"""A gated recurrent unit (arXiv:1406.1078).

Shapes: T rows, B unrolls, I input features, H units, which are also the S numbers of a state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from herd.components.cores.api import Core
from herd.networks.layers import PLAIN, LayerDesign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.components.cores.gru import GRUSettings


class GRUCore(Core):
    """GRU over rows, float32.

    r, z = sigmoid of W x + U h + b;  n = tanh(W x + b + r (U h + c));  h' = (1 - z) n + z h.

    W of each gate starts as Xavier's and U orthogonal, or (``network.initialization`` truncated_normal) both as Glorot's uniform.
    """

    def __init__(self, settings: GRUSettings, num_inputs: int, design: LayerDesign = PLAIN) -> None:
        size = settings.size
        super().__init__(size, settings.state_size())
        self.input_weight = nn.Parameter(torch.empty(3 * size, num_inputs))
        self.hidden_weight = nn.Parameter(torch.empty(3 * size, size))
        self.input_bias = nn.Parameter(torch.zeros(3 * size))
        self.hidden_bias = nn.Parameter(torch.zeros(3 * size))
        for gate in range(3):
            rows = slice(gate * size, (gate + 1) * size)
            nn.init.xavier_uniform_(self.input_weight.data[rows])
            initialise = nn.init.orthogonal_ if design.initialization == "orthogonal" else nn.init.xavier_uniform_
            initialise(self.hidden_weight.data[rows])

    def forward(
        self,
        inputs: Tensor,
        reset: Tensor,
        state: Tensor,
        *,
        num_tail_rows: int = 0,
        reset_rows: Sequence[int] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See `Core`."""
        # The input's share of the gates needs no recurrence: one product over all rows.
        gates = nn.functional.linear(inputs, self.input_weight, self.input_bias)
        return super().forward(gates, reset, state, num_tail_rows=num_tail_rows, reset_rows=reset_rows)

    def step(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `Core`; ``inputs`` are the input's share of the gates, [B, 3 H]."""
        reset, update, new = inputs.chunk(3, dim=1)
        hidden_reset, hidden_update, hidden_new = nn.functional.linear(state, self.hidden_weight, self.hidden_bias).chunk(3, dim=1)
        keep = torch.sigmoid(update + hidden_update)
        candidate = torch.tanh(new + torch.sigmoid(reset + hidden_reset) * hidden_new)
        state = torch.lerp(candidate, state, keep)
        return state, state
