"""Bandits Vote: DiCE (arXiv:2106.00707), appendix A: algorithm 2 and equations (9)-(11).

An ensemble is immutable, and ``update`` returns a new one. The caller passes the random generator.

Shapes: M bandits, K tiles, D candidates. x = log(1 + 1/tau) is cut into tiles of equal width; tau itself may be infinite (x = 0,
the uniform policy), so what travels and is stored is 1/tau.

Where the paper is silent: weights start at 0; for tiles at either end, averages cover the tiles that exist; the right boundary belongs to
the last tile; values without spread score 0 before the bonus; equal scores are ordered at random, because an untried ensemble would
otherwise begin with the lowest D tiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.protocols.bandit.tiling import Tiling

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Mode = Literal["argmax", "random"]

_ROUND_OFF = 1e-12
"""Values whose relative difference is smaller are equal. This is 4,500 units in the last place; averages of 3, 5 and 7 equal weights
differ by a few. Otherwise constant returns would be ranked by rounding errors, scaled to unit variance."""


@dataclass(frozen=True, slots=True, eq=False)
class BanditsVote:
    """The ensemble of one agent on one task."""

    tiling: Tiling
    modes: tuple[Mode, ...]
    """How each bandit proposes candidates, [M]."""
    learning_rates: tuple[float, ...]
    """[M]."""
    widths: tuple[int, ...]
    """Number of neighbours on either side over which each bandit averages a tile's value, [M]."""
    weights: FloatArray
    """w, [M, K]; read-only."""
    counts: IntArray
    """N, [K]: number of samples by tile; read-only. Every bandit is updated with every sample, so all M share one row."""


class Vote(NamedTuple):
    """One draw."""

    x: float
    """The chosen candidate."""
    candidate_tiles: IntArray
    """The tiles of all candidates, [M, D]."""


def new_ensemble(
    tiling: Tiling,
    *,
    num_bandits: int,
    modes: Sequence[Mode],
    learning_rates: Sequence[float],
    widths: Sequence[int],
    generator: np.random.Generator,
) -> BanditsVote:
    """First loop of algorithm 2: each bandit draws its mode, learning rate and width uniformly from the choices."""
    return ensemble_of(
        tiling,
        modes=tuple(modes[i] for i in generator.integers(len(modes), size=num_bandits)),
        learning_rates=tuple(learning_rates[i] for i in generator.integers(len(learning_rates), size=num_bandits)),
        widths=tuple(widths[i] for i in generator.integers(len(widths), size=num_bandits)),
        weights=np.zeros((num_bandits, tiling.num_tiles)),
        counts=np.zeros(tiling.num_tiles, np.int64),
    )


def ensemble_of(
    tiling: Tiling,
    *,
    modes: tuple[Mode, ...],
    learning_rates: tuple[float, ...],
    widths: tuple[int, ...],
    weights: FloatArray,
    counts: IntArray,
) -> BanditsVote:
    """Build an ensemble, which takes ownership of the arrays.

    Raises:
        ValueError: the shapes do not fit each other or the tiling.

    """
    num_bandits = len(modes)
    if not num_bandits == len(learning_rates) == len(widths):
        raise ValueError(f"{num_bandits} modes, {len(learning_rates)} learning rates and {len(widths)} widths")
    if weights.shape != (num_bandits, tiling.num_tiles) or counts.shape != (tiling.num_tiles,):
        raise ValueError(f"weights {weights.shape}, counts {counts.shape} do not fit {num_bandits} bandits and {tiling.num_tiles} tiles")
    weights.setflags(write=False)
    counts.setflags(write=False)
    return BanditsVote(tiling, modes, learning_rates, widths, weights, counts)


def tile_values(ensemble: BanditsVote) -> FloatArray:
    """Return V of equation (9), [M, K]."""
    windows, sizes = _windows(ensemble.widths, ensemble.tiling.num_tiles)
    sums: FloatArray = np.matmul(windows, ensemble.weights[:, :, None])[:, :, 0]
    return sums / sizes


def evaluation(ensemble: BanditsVote) -> FloatArray:
    """Return the ensemble's value of each tile, [K]: the mean over its bandits (section 3.3)."""
    means: FloatArray = tile_values(ensemble).mean(axis=0)
    return means


def update(ensemble: BanditsVote, x: float, episode_return: float) -> BanditsVote:
    """Apply equation (10) to every bandit: the weights in the window around x's tile move towards the return, and its count increases."""
    tile = ensemble.tiling.tile(x)
    windows, _ = _windows(ensemble.widths, ensemble.tiling.num_tiles)
    error = episode_return - tile_values(ensemble)[:, tile]
    weights = ensemble.weights + windows[:, tile] * (np.array(ensemble.learning_rates) * error)[:, None]
    counts = ensemble.counts.copy()
    counts[tile] += 1
    weights.setflags(write=False)
    counts.setflags(write=False)
    return BanditsVote(ensemble.tiling, ensemble.modes, ensemble.learning_rates, ensemble.widths, weights, counts)


def scores(ensemble: BanditsVote, *, ucb_scale: float) -> FloatArray:
    """Return the scores of equation (11), [M, K]: standardised values plus the bonus for tiles that were seldom tried."""
    values = tile_values(ensemble)
    size = np.abs(values).max(axis=1, keepdims=True)
    values = values / np.where(size > 0.0, size, 1.0)  # standardising undoes this; it avoids overflow and underflow of squares
    is_flat = np.ptp(values, axis=1, keepdims=True) <= _ROUND_OFF
    spread = np.where(is_flat, 1.0, values.std(axis=1, keepdims=True))
    standardised = np.where(is_flat, 0.0, (values - values.mean(axis=1, keepdims=True)) / spread)
    bonus = np.sqrt(math.log1p(int(ensemble.counts.sum())) / (1 + ensemble.counts))
    return standardised + ucb_scale * bonus


def candidate_tiles(ensemble: BanditsVote, *, num_candidates: int, ucb_scale: float, generator: np.random.Generator) -> IntArray:
    """Return the tiles that the bandits vote for, [M, D].

    Mode argmax takes the D highest scores. Mode random draws D tiles without replacement with the scores as logits, which is the same as
    taking the D highest scores after adding Gumbel noise to each.
    """
    noise = generator.gumbel(size=ensemble.weights.shape)
    is_random = np.array([mode == "random" for mode in ensemble.modes])
    keys = scores(ensemble, ucb_scale=ucb_scale) + np.where(is_random[:, None], noise, 0.0)
    order: IntArray = np.lexsort((noise, keys))  # by key, ties by the noise
    return order[:, -num_candidates:]


def draw(ensemble: BanditsVote, *, num_candidates: int, ucb_scale: float, generator: np.random.Generator) -> Vote:
    """Sample x: every bandit proposes D candidates, each drawn uniformly within one of its tiles, and one of all M x D is chosen."""
    tiles = candidate_tiles(ensemble, num_candidates=num_candidates, ucb_scale=ucb_scale, generator=generator)
    # Only the chosen candidate needs a position within its tile.
    chosen = tiles.flat[generator.integers(tiles.size)]
    return Vote(draw_within(ensemble.tiling, int(chosen), generator), tiles)


def best_tiles(values: FloatArray, counts: IntArray) -> IntArray:
    """Return the best tiles among those tried, or all tiles before the first return; ``values`` and ``counts`` [K] by tile.

    A tile that was never tried has the value 0, apart from its neighbours' share. With negative returns that exceeds all known values.
    """
    tried = counts > 0
    values = np.where(tried, values, -np.inf) if tried.any() else np.zeros(len(values))
    return np.flatnonzero(values == values.max())


def draw_within(tiling: Tiling, tile: int, generator: np.random.Generator) -> float:
    """Sample x uniformly within a tile."""
    edges = tiling.edges()
    return float(generator.uniform(edges[tile], edges[tile + 1]))


@lru_cache(maxsize=1024)
def _windows(widths: tuple[int, ...], num_tiles: int) -> tuple[FloatArray, FloatArray]:
    """Return [M, K, K], which is 1 where tile k is in the window of tile i, and [M, K], the number of tiles in each window.

    There is one cache entry per ensemble: 1,024 entries of 7 x 39 x 39 floats take 87 MB, and those of a run with 57 tasks 5 MB.
    """
    tiles = np.arange(num_tiles)
    distance = np.abs(tiles[:, None] - tiles)
    windows = np.stack([(distance <= width).astype(np.float64) for width in widths])
    return windows, windows.sum(axis=2)
