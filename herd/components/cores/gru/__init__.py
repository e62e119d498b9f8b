"""A gated recurrent unit."""

from __future__ import annotations

from typing import Literal

from herd.components.cores import CoreSettings
from herd.components.registry import Part
from herd.components.settings import PositiveInt


class GRUSettings(CoreSettings):
    """A GRU (arXiv:1406.1078): half of an LSTM's state and three quarters of its weights."""

    kind: Literal["gru"] = "gru"
    """A GRU (arXiv:1406.1078): half of an LSTM's state and three quarters of its weights."""
    size: PositiveInt = 256
    """Number of units (H)."""

    def state_size(self) -> int:
        """Return H."""
        return self.size


PART = Part("gru", GRUSettings, f"{__name__}.gru:GRUCore")
