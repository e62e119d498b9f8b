"""The recurrent core: an LSTM whose state is zeroed inside an unroll where a row starts an episode.

Shapes: T rows, B unrolls, I input features, H units. State [B, 2, H]: hidden, then cell.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from herd.networks.layers import Initialization


class LSTMCore(nn.Module):
    """LSTM over rows, float32.

    i, f, o = sigmoid, g = tanh of W x + U h + b;  c' = f c + i g;  h' = o tanh(c').

    The forget gate's bias starts at 1, as in the authors' framework. W and U start as ``initialization`` says: W of each gate Xavier's and
    U orthogonal, or (``truncated_normal``) as TensorFlow's cell in the authors' code: Glorot's uniform over W and U of all gates together.
    """

    def __init__(self, num_inputs: int, size: int, initialization: Initialization = "orthogonal") -> None:
        super().__init__()
        self.size = size
        self.input_weight = nn.Parameter(torch.empty(4 * size, num_inputs))
        self.hidden_weight = nn.Parameter(torch.empty(4 * size, size))
        self.bias = nn.Parameter(torch.zeros(4 * size))
        if initialization == "orthogonal":
            for gate in range(4):
                nn.init.xavier_uniform_(self.input_weight.data[gate * size : (gate + 1) * size])
                nn.init.orthogonal_(self.hidden_weight.data[gate * size : (gate + 1) * size])
        else:
            bound = math.sqrt(6.0 / (num_inputs + size + 4 * size))
            nn.init.uniform_(self.input_weight.data, -bound, bound)
            nn.init.uniform_(self.hidden_weight.data, -bound, bound)
        nn.init.ones_(self.bias.data[size : 2 * size])

    def forward(self, inputs: Tensor, reset: Tensor, state: Tensor, rows_left: int = 0) -> tuple[Tensor, Tensor]:
        """Run T rows.

        Args:
            inputs: float32 [T, B, I].
            reset: bool [T, B]; the state is zeroed before such a row.
            state: float32 [B, 2, H] before row 0.
            rows_left: rows at the end, at most T, that come after the state that is returned.

        Returns:
            outputs float32 [T, B, H] and the state [B, 2, H] before the last ``rows_left`` rows.
        """
        hidden, cell = state.unbind(1)
        # The input's share of the gates needs no recurrence: one product over all rows.
        input_gates = nn.functional.linear(inputs, self.input_weight, self.bias)
        transposed = self.hidden_weight.t()
        outputs: list[Tensor] = []
        cells = [cell]
        for gates, starts in zip(input_gates.unbind(0), reset.unsqueeze(-1).unbind(0), strict=True):
            hidden, cell = hidden.masked_fill(starts, 0.0), cell.masked_fill(starts, 0.0)
            write, forget, candidate, read = torch.addmm(gates, hidden, transposed).chunk(4, dim=1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(write) * torch.tanh(candidate)
            hidden = torch.sigmoid(read) * torch.tanh(cell)
            outputs.append(hidden)
            cells.append(cell)
        done = len(outputs) - rows_left
        return torch.stack(outputs), state if done == 0 else torch.stack([outputs[done - 1], cells[done]], dim=1)
