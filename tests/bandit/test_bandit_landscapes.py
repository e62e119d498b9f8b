"""The ensemble finds the better temperatures when returns are a known function of x = log(1 + 1/tau) plus noise.

The requirement for episodes 500 to 1,500: in the median over seeds at least 60 % lie within 0.5 of the best x (a quarter of the range),
and at least 45 % with every seed, even where all seven bandits happen to have mode random. Voting without updates stays at a quarter.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from herd_bandit import bandits_vote
from herd_bandit.bandits_vote import new_ensemble

from herd.protocols.bandit.tiling import Tiling

TILING = Tiling(accuracy=0.1, min_inverse_temperature=0.0, max_inverse_temperature=50.0)
EPISODES, SETTLED = 1500, 500
SEEDS = range(4)
RADIUS = 0.5

Landscape = Callable[[float, int], float]
"""Mean return as a function of (x, episode)."""


def bump(x: float, centre: float) -> float:
    return float(np.exp(-(((x - centre) / 0.5) ** 2)))


def drifting_centre(episode: int) -> float:
    return 0.8 + 2.4 * episode / EPISODES


LANDSCAPES: dict[str, tuple[Landscape, Callable[[int], float]]] = {
    "single peak": (lambda x, _: bump(x, 2.6), lambda _: 2.6),
    "peak at the left end": (lambda x, _: bump(x, 0.3), lambda _: 0.3),
    "two peaks": (lambda x, _: bump(x, 1.0) + 0.6 * bump(x, 3.0), lambda _: 1.0),
    "drifting peak": (lambda x, episode: bump(x, drifting_centre(episode)), drifting_centre),
    "negative returns": (lambda x, _: bump(x, 2.6) - 21.0, lambda _: 2.6),
}


def play(landscape: Landscape, noise: float, seed: int, *, updates: bool = True, episodes: int = EPISODES) -> tuple[list[float], list[int]]:
    """The x of every episode, and the final counts."""
    generator = np.random.default_rng(seed)
    state = new_ensemble(
        TILING,
        num_bandits=7,
        modes=("argmax", "random"),
        learning_rates=(0.05, 0.1, 0.2),
        widths=(1, 2, 3),
        generator=generator,
    )
    xs = []
    for episode in range(episodes):
        x = bandits_vote.draw(state, num_candidates=7, ucb_scale=1.0, generator=generator).x
        xs.append(x)
        if updates:
            state = bandits_vote.update(state, x, landscape(x, episode) + noise * generator.normal())
    return xs, state.counts.tolist()


def share_near(xs: list[float], centre: Callable[[int], float]) -> float:
    near = [abs(x - centre(episode)) < RADIUS for episode, x in enumerate(xs)]
    return float(np.mean(near[SETTLED:]))


@pytest.mark.parametrize("name", LANDSCAPES)
def test_voting_concentrates_on_the_better_region(name: str) -> None:
    landscape, centre = LANDSCAPES[name]
    shares = [share_near(play(landscape, 0.2, seed)[0], centre) for seed in SEEDS]
    assert np.median(shares) >= 0.6, shares
    assert min(shares) >= 0.45, shares


def test_random_voting_does_not_concentrate() -> None:
    landscape, centre = LANDSCAPES["single peak"]
    shares = [share_near(play(landscape, 0.2, seed, updates=False)[0], centre) for seed in SEEDS]
    assert max(shares) < 0.35, shares


@pytest.mark.parametrize("constant", [5.0, 0.1, -21.0, 0.0, 1e6])
def test_constant_returns_leave_no_tile_untried(constant: float) -> None:
    xs, counts = play(lambda _x, _episode: constant, 0.0, 3, episodes=2500)
    # Standardising amplifies small differences, so shares are uneven; but the bonus makes every tile be tried.
    assert min(counts) >= 1
    assert np.isfinite(xs).all()
