from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from herd.components.cores.api import Core


class GRUCore(Core):
    """A step is torch's GRU cell; a game begins at a state that is learned."""

    def __init__(self, settings: Any, num_inputs: int, _design: Any) -> None:
        super().__init__(settings.size, settings.state_size())
        self.cell = nn.GRUCell(num_inputs, settings.size)
        self.initial = nn.Parameter(torch.zeros(settings.size))

    def initial_state(self, batch: int) -> Tensor:
        return self.initial.expand(batch, -1)

    def step(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        after = self.cell(inputs, state)
        return after, after
