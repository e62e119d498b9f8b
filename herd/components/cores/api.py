"""What a core is. The state of each unroll is one flat vector, which unrolls and requests carry as it is.

Shapes: T rows, B unrolls, I input features, F output features, S numbers of a state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.components.cores import CoreSettings
    from herd.networks.layers import LayerDesign


class Core(nn.Module):
    """A core that computes row by row. A subclass implements `step` or, if it has a faster way over several rows, ``forward``."""

    def __init__(self, num_features: int, state_size: int) -> None:
        """``num_features``: F; ``state_size``: S."""
        super().__init__()
        self.num_features = num_features
        self.state_size = state_size

    def initial_state(self, batch: int) -> Tensor:
        """Return the state that a reset sets, float32 [B, S]: zeros unless a subclass knows better."""
        parameter = next(self.parameters(), None)
        return torch.zeros(batch, self.state_size, device=None if parameter is None else parameter.device)

    def step(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one row: inputs float32 [B, I], state [B, S] -> outputs [B, F] and the state after the row."""
        raise NotImplementedError

    def forward(
        self,
        inputs: Tensor,
        reset: Tensor,
        state: Tensor,
        *,
        num_tail_rows: int = 0,
        reset_rows: Sequence[int] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Run T rows.

        Args:
            inputs: float32 [T, B, I].
            reset: bool [T, B]; before such a row, the state is set to the initial one.
            state: float32 [B, S] before row 0.
            num_tail_rows: number of last rows, at most T, that follow the returned state.
            reset_rows: the rows with any reset, if the host knows them; None: it does not.

        Returns:
            outputs float32 [T, B, F], and the state [B, S] before the last ``num_tail_rows`` rows.
        """
        initial = self.initial_state(inputs.shape[1])
        outputs, states = [], [state]
        for row, row_inputs in enumerate(inputs.unbind(0)):
            if reset_rows is None or row in reset_rows:
                state = torch.where(reset[row].unsqueeze(-1), initial, state)
            output, state = self.step(row_inputs, state)
            outputs.append(output)
            states.append(state)
        return torch.stack(outputs), states[len(outputs) - num_tail_rows]


class NoCore(Core):
    """No memory: the outputs are the inputs, and the state is empty."""

    def __init__(self, settings: CoreSettings, num_inputs: int, design: LayerDesign) -> None:  # noqa: ARG002
        super().__init__(num_inputs, 0)

    def forward(
        self,
        inputs: Tensor,
        reset: Tensor,  # noqa: ARG002  there is nothing to reset
        state: Tensor,
        *,
        num_tail_rows: int = 0,  # noqa: ARG002
        reset_rows: Sequence[int] | None = None,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        """See `Core`."""
        return inputs, state
