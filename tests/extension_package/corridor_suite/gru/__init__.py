"""A core from another package: a GRU. Its settings load no torch."""

from __future__ import annotations

from typing import Literal

from herd.components.cores import CoreSettings
from herd.components.registry import Part
from herd.components.settings import PositiveInt


class CorridorGRUSettings(CoreSettings):
    """A GRU."""

    kind: Literal["corridor_gru"] = "corridor_gru"
    """A GRU."""
    size: PositiveInt = 16
    """Number of units."""

    def state_size(self) -> int:
        return self.size


PART = Part("corridor_gru", CorridorGRUSettings, f"{__name__}.core:GRUCore")
