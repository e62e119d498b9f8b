"""Bandits Vote: DiCE (arXiv:2106.00707), appendix A: algorithm 2 and equations (9)-(11).

State in, state out: an ensemble is immutable, ``update`` returns the next one. Randomness is a generator that the caller passes in.

Shapes: M bandits, K tiles, D candidates. x = log(1 + 1/tau) is cut into tiles of equal width; tau itself may be infinite (x = 0,
the uniform policy), so what travels and is stored is 1/tau.

Where the paper is silent: weights start at 0; at the ends of the row an average goes over the tiles that exist; the right boundary
falls in the last tile; a zero spread of values gives score 0 before the bonus; equal scores are ordered at random, or an untried
ensemble would begin with the lowest D tiles for no reason.
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

    from herd.config.tiling import Tiling

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Mode = Literal["argmax", "random"]

_ROUND_OFF = 1e-12
"""Values that differ by less than this share of their size are equal: 4,500 units in the last place, where averages of 3, 5 and 7
equal weights differ by a few. Without it constant returns would be ranked by rounding errors, blown up to unit variance."""


@dataclass(frozen=True, slots=True, eq=False)
class BanditsVote:
    """The ensemble of one agent on one task."""

    tiling: Tiling
    modes: tuple[Mode, ...]
    """[M]: how a bandit proposes candidates."""
    learning_rates: tuple[float, ...]
    """[M]."""
    widths: tuple[int, ...]
    """[M]: a tile's value is averaged over this many neighbours on either side."""
    weights: FloatArray
    """w, [M, K]; read-only."""
    counts: IntArray
    """N, [K]: samples by tile; read-only. Every bandit is updated with every sample, so one row serves all M."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BanditsVote):
            return NotImplemented
        same_design = (self.tiling, self.modes, self.learning_rates, self.widths) == (
            other.tiling,
            other.modes,
            other.learning_rates,
            other.widths,
        )
        return same_design and np.array_equal(self.weights, other.weights) and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]  # arrays


class Vote(NamedTuple):
    """One draw."""

    x: float
    """The candidate that was chosen."""
    candidate_tiles: IntArray
    """[M, D]: the tiles of all candidates."""


def new_ensemble(
    tiling: Tiling,
    *,
    num_bandits: int,
    modes: Sequence[Mode],
    learning_rates: Sequence[float],
    widths: Sequence[int],
    generator: np.random.Generator,
) -> BanditsVote:
    """Algorithm 2's first loop: each bandit draws its mode, learning rate and width uniformly from the choices."""
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
    """Put an ensemble together; the arrays are its own from now on.

    Raises:
        ValueError: shapes that do not fit each other or the tiling.

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
    """V of equation (9), [M, K]."""
    windows, sizes = _windows(ensemble.widths, ensemble.tiling.num_tiles)
    sums: FloatArray = np.matmul(windows, ensemble.weights[:, :, None])[:, :, 0]
    return sums / sizes


def evaluation(ensemble: BanditsVote) -> FloatArray:
    """What the ensemble holds of each tile, [K]: the mean over its bandits (section 3.3)."""
    means: FloatArray = tile_values(ensemble).mean(axis=0)
    return means


def update(ensemble: BanditsVote, x: float, episode_return: float) -> BanditsVote:
    """Equation (10), for every bandit: the windows around x's tile move towards the return, and its count grows by one."""
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
    """Equation (11), [M, K]: standardised values and the bonus of tiles seldom tried."""
    values = tile_values(ensemble)
    size = np.abs(values).max(axis=1, keepdims=True)
    values = values / np.where(size > 0.0, size, 1.0)  # standardising undoes it; squares of 1e200 or 1e-200 would be lost
    is_flat = np.ptp(values, axis=1, keepdims=True) <= _ROUND_OFF
    spread = np.where(is_flat, 1.0, values.std(axis=1, keepdims=True))
    standardised = np.where(is_flat, 0.0, (values - values.mean(axis=1, keepdims=True)) / spread)
    bonus = np.sqrt(math.log1p(int(ensemble.counts.sum())) / (1 + ensemble.counts))
    return standardised + ucb_scale * bonus


def candidate_tiles(ensemble: BanditsVote, *, num_candidates: int, ucb_scale: float, generator: np.random.Generator) -> IntArray:
    """Tiles that the bandits vote for, [M, D].

    Mode argmax takes the D highest scores; mode random draws D tiles without replacement with the scores as logits, which is to take
    the D highest scores after adding Gumbel noise to each.
    """
    noise = generator.gumbel(size=ensemble.weights.shape)
    is_random = np.array([mode == "random" for mode in ensemble.modes])
    keys = scores(ensemble, ucb_scale=ucb_scale) + np.where(is_random[:, None], noise, 0.0)
    order: IntArray = np.lexsort((noise, keys))  # by key, equal ones by the noise
    return order[:, -num_candidates:]


def draw(ensemble: BanditsVote, *, num_candidates: int, ucb_scale: float, generator: np.random.Generator) -> Vote:
    """Sample x: every bandit proposes D candidates, one uniformly from each of its tiles, and one of all M x D is taken."""
    tiles = candidate_tiles(ensemble, num_candidates=num_candidates, ucb_scale=ucb_scale, generator=generator)
    # The other candidates' places in their tiles would be thrown away, so only the chosen one is drawn.
    chosen = tiles.flat[generator.integers(tiles.size)]
    return Vote(_within(ensemble.tiling, int(chosen), generator), tiles)


def best_tiles(ensemble: BanditsVote) -> IntArray:
    """Return the tiles of highest evaluation among those tried, or all of them before the first return.

    A tile never tried has the value 0 and its neighbours' share: above everything known where returns are negative.
    """
    tried = ensemble.counts > 0
    values = np.where(tried, evaluation(ensemble), -np.inf) if tried.any() else np.zeros(ensemble.tiling.num_tiles)
    return np.flatnonzero(values == values.max())


def draw_best(ensemble: BanditsVote, generator: np.random.Generator) -> float:
    """Sample x for an evaluation: uniformly from the best-valued tile; equals at random."""
    return _within(ensemble.tiling, int(generator.choice(best_tiles(ensemble))), generator)


def _within(tiling: Tiling, tile: int, generator: np.random.Generator) -> float:
    edges = tiling.edges()
    return float(generator.uniform(edges[tile], edges[tile + 1]))


@lru_cache(maxsize=1024)
def _windows(widths: tuple[int, ...], num_tiles: int) -> tuple[FloatArray, FloatArray]:
    """[M, K, K]: 1 where tile k is in the window of tile i; and [M, K]: the tiles in each window.

    One entry per ensemble: 1,024 of 7 x 39 x 39 floats take 87 MB, and a run of 57 tasks 5.
    """
    tiles = np.arange(num_tiles)
    distance = np.abs(tiles[:, None] - tiles)
    windows = np.stack([(distance <= width).astype(np.float64) for width in widths])
    return windows, windows.sum(axis=2)
