"""An LSTM whose state is reset inside an unroll where a row starts an episode.

Shapes: T rows, B unrolls, I input features, H units, S = 2 H numbers of a state.
"""

from __future__ import annotations

import itertools
import math
import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from herd.components.cores.api import Core
from herd.networks.layers import PLAIN, LayerDesign

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.components.cores.lstm import LSTMSettings

# Warning of cuDNN, which then copies 2 MB of weights at each call; in return, checkpoints keep the parameters' names and shapes.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk of memory", category=UserWarning)

MIN_FUSED_ROWS = 5
"""Minimum length of a span for the fused kernel; on a CPU, shorter spans are not slower row by row (benchmarks/log/2026-11.md)."""


class LSTMCore(Core):
    """LSTM over rows, float32. Its state is hidden, then cell: S = 2 H.

    i, f, o = sigmoid, g = tanh of W x + U h + b;  c' = f c + i g;  h' = o tanh(c').

    The forget gate's bias starts at 1, as in the authors' framework. W and U start as ``network.initialization`` says: W of each gate
    Xavier's and U orthogonal, or (``truncated_normal``) as TensorFlow's cell in the authors' code: Glorot's uniform over W and U of all
    gates together.
    """

    def __init__(self, settings: LSTMSettings, num_inputs: int, design: LayerDesign = PLAIN) -> None:
        size = settings.size
        super().__init__(size, settings.state_size())
        self.input_weight = nn.Parameter(torch.empty(4 * size, num_inputs))
        self.hidden_weight = nn.Parameter(torch.empty(4 * size, size))
        self.bias = nn.Parameter(torch.zeros(4 * size))
        if design.initialization == "orthogonal":
            for gate in range(4):
                nn.init.xavier_uniform_(self.input_weight.data[gate * size : (gate + 1) * size])
                nn.init.orthogonal_(self.hidden_weight.data[gate * size : (gate + 1) * size])
        else:
            bound = math.sqrt(6.0 / (num_inputs + size + 4 * size))
            nn.init.uniform_(self.input_weight.data, -bound, bound)
            nn.init.uniform_(self.hidden_weight.data, -bound, bound)
        nn.init.ones_(self.bias.data[size : 2 * size])

    def forward(
        self,
        inputs: Tensor,
        reset: Tensor,
        state: Tensor,
        *,
        num_tail_rows: int = 0,
        reset_rows: Sequence[int] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See `Core`. Runs the library's fused kernel between resets that the host knows, and otherwise row by row."""
        hidden, cell = state.chunk(2, dim=1)
        done = len(inputs) - num_tail_rows
        outputs: list[Tensor] = []
        for span, is_fused in _spans(len(inputs), done, reset_rows):
            if span.start == done:
                state = torch.cat([hidden, cell], dim=1)
            resets = {row - span.start: reset[row].unsqueeze(-1) for row in (span if reset_rows is None else reset_rows) if row in span}
            run = self._fused if is_fused else self._stepped
            rows, hidden, cell = run(inputs[span.start : span.stop], hidden, cell, resets)
            outputs.append(rows)
        if num_tail_rows == 0:
            state = torch.cat([hidden, cell], dim=1)
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs), state

    def _stepped(self, inputs: Tensor, hidden: Tensor, cell: Tensor, resets: Mapping[int, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Run row by row. ``resets``: bool [B, 1] by row."""
        # The input's share of the gates needs no recurrence: one product over all rows.
        input_gates = nn.functional.linear(inputs, self.input_weight, self.bias)
        transposed = self.hidden_weight.t()
        outputs = []
        for row, gates in enumerate(input_gates.unbind(0)):
            if row in resets:
                hidden, cell = hidden.masked_fill(resets[row], 0.0), cell.masked_fill(resets[row], 0.0)
            input_, forget, candidate, output = torch.addmm(gates, hidden, transposed).chunk(4, dim=1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(input_) * torch.tanh(candidate)
            hidden = torch.sigmoid(output) * torch.tanh(cell)
            outputs.append(hidden)
        return torch.stack(outputs), hidden, cell

    def _fused(self, inputs: Tensor, hidden: Tensor, cell: Tensor, resets: Mapping[int, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Run with one call of cuDNN, or oneDNN on a CPU; resets may only occur before the first row."""
        if resets:
            hidden, cell = hidden.masked_fill(resets[0], 0.0), cell.masked_fill(resets[0], 0.0)
        state = (hidden.unsqueeze(0).contiguous(), cell.unsqueeze(0).contiguous())
        # The kernel adds a second bias.
        weights = (self.input_weight, self.hidden_weight, self.bias, torch.zeros_like(self.bias))
        outputs, hidden, cell = torch.lstm(inputs, state, weights, True, 1, 0.0, torch.is_grad_enabled(), False, False)
        return outputs, hidden.squeeze(0), cell.squeeze(0)


def _spans(num_rows: int, done: int, reset_rows: Sequence[int] | None) -> list[tuple[range, bool]]:
    """Divide the rows into spans, each with whether the fused kernel runs it, which allows a reset only before its first row.

    A span that is too short is joined to its neighbour. Row ``done`` begins a span.
    """
    if reset_rows is None:
        return [(span, False) for span in (range(done), range(done, num_rows)) if span]
    spans: list[tuple[range, bool]] = []
    for start, stop in itertools.pairwise(sorted({0, done, num_rows, *reset_rows})):
        is_fused = stop - start >= MIN_FUSED_ROWS
        if is_fused or not spans or spans[-1][1] or start == done:
            spans.append((range(start, stop), is_fused))
        else:
            spans[-1] = (range(spans[-1][0].start, stop), False)
    return spans
