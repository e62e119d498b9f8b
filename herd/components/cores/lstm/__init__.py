"""The LSTM of IMPALA's Fig. 3."""

from __future__ import annotations

from typing import Literal

from herd.components.cores import CoreSettings
from herd.components.registry import Part
from herd.components.settings import PositiveInt


class LSTMSettings(CoreSettings):
    """An LSTM (IMPALA's Fig. 3)."""

    kind: Literal["lstm"] = "lstm"
    """An LSTM (IMPALA's Fig. 3)."""
    size: PositiveInt = 256
    """Number of units (H)."""

    def state_size(self) -> int:
        """Return 2 H: hidden, then cell."""
        return 2 * self.size


PART = Part("lstm", LSTMSettings, f"{__name__}.lstm:LSTMCore")
