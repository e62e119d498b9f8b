"""The tiles of a bandit's temperatures (DiCE, arXiv:2106.00707, appendix A), for every service that counts games by tile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from herd.config.run import RunSettings
    from herd.config.services import BanditSettings

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tiling:
    """The range [l, r] of x, cut into tiles of width ``accuracy``. The remainder at the right belongs to the last tile."""

    accuracy: float
    """Width of a tile, in x."""
    min_inverse_temperature: float
    max_inverse_temperature: float

    @property
    def low(self) -> float:
        """Left boundary l, in x."""
        return x_of(self.min_inverse_temperature)

    @property
    def high(self) -> float:
        """Right boundary r, in x."""
        return x_of(self.max_inverse_temperature)

    @property
    def num_tiles(self) -> int:
        """Number of tiles (K)."""
        return math.floor((self.high - self.low) / self.accuracy)

    def tile(self, x: float) -> int:
        """Return the tile that contains x; x beyond a boundary is clipped to it."""
        return min(math.floor((min(max(x, self.low), self.high) - self.low) / self.accuracy), self.num_tiles - 1)

    def tile_of(self, inverse_temperature: float) -> int:
        """Return the tile of 1/tau."""
        return self.tile(x_of(inverse_temperature))

    def edges(self) -> FloatArray:
        """[K + 1], in x: tile i lies between edges i and i + 1."""
        edges = self.low + self.accuracy * np.arange(self.num_tiles + 1, dtype=np.float64)
        edges[-1] = self.high
        return edges


def x_of(inverse_temperature: float) -> float:
    """Return x = log(1 + 1/tau)."""
    return math.log1p(inverse_temperature)


def inverse_temperature_of(x: float) -> float:
    """Return 1/tau = exp(x) - 1."""
    return math.expm1(x)


def tiling_of(settings: BanditSettings) -> Tiling:
    """Return the tiles that the settings describe."""
    return Tiling(settings.tile_accuracy, settings.min_inverse_temperature, settings.max_inverse_temperature)


def tiling_of_run(settings: RunSettings) -> Tiling | None:
    """Return the tiles from which a run's games draw their temperatures; None if tau is always 1."""
    return tiling_of(settings.bandit) if settings.loss.draws_temperatures else None
