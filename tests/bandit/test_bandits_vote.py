"""Equations (9)-(11) against the slow transcription, and invariants that hold for all inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from herd_bandit import bandits_vote
from herd_bandit.bandits_vote import BanditsVote, ensemble_of, new_ensemble
from hypothesis import given, settings
from hypothesis import strategies as st

from herd.protocols.bandit.tiling import Tiling, inverse_temperature_of, x_of
from tests.oracles import bandits_vote as oracle

PAPER = Tiling(accuracy=0.1, min_inverse_temperature=0.0, max_inverse_temperature=50.0)
CANDIDATES, UCB = 7, 1.0


def ensemble(
    modes: str = "aaaarrr", widths: tuple[int, ...] = (1, 2, 3, 1, 1, 2, 3), tiling: Tiling = PAPER, rates: tuple[float, ...] | None = None
) -> BanditsVote:
    """A fresh ensemble; ``modes`` has an a or an r for each bandit."""
    count = len(modes)
    return ensemble_of(
        tiling,
        modes=tuple("argmax" if mode == "a" else "random" for mode in modes),
        learning_rates=rates or tuple((0.05, 0.1, 0.2)[i % 3] for i in range(count)),
        widths=widths[:count],
        weights=np.zeros((count, tiling.num_tiles)),
        counts=np.zeros(tiling.num_tiles, np.int64),
    )


def oracles_of(made: BanditsVote) -> list[oracle.Bandit]:
    tiling = made.tiling
    return [
        oracle.Bandit(
            mode,
            math.log(1 + tiling.min_inverse_temperature),
            math.log(1 + tiling.max_inverse_temperature),
            tiling.accuracy,
            width,
            rate,
            CANDIDATES,
            UCB,
        )
        for mode, rate, width in zip(made.modes, made.learning_rates, made.widths, strict=True)
    ]


def history(length: int, generator: np.random.Generator) -> list[tuple[float, float]]:
    """Pairs (x, g): x takes every boundary, values beyond, tile edges and values between; returns g range from -1,000 to 1,000."""
    special = [-1.0, 0.0, 0.05, 3.8, 3.9, PAPER.high, math.nextafter(PAPER.high, 0), 4.0, 99.0, 2 * 0.1, 0.3, 30 * 0.1]
    xs = [*special, *generator.uniform(-0.1, 4.1, length - len(special))]
    return [(float(x), float(g)) for x, g in zip(xs, generator.normal(0, 1000, length), strict=True)]


def test_values_counts_and_scores_agree_with_the_oracle() -> None:
    generator = np.random.default_rng(7)
    state, slow = ensemble(), oracles_of(ensemble())
    for number, (x, g) in enumerate(history(1500, generator)):
        state = bandits_vote.update(state, x, g)
        for bandit in slow:
            bandit.update(x, g)
        if number % 25 and number > 40:
            continue
        values = [[bandit.value(i) for i in range(bandit.num_tiles)] for bandit in slow]
        np.testing.assert_allclose(bandits_vote.tile_values(state), values, rtol=0, atol=1e-9)
        np.testing.assert_allclose(state.weights, [bandit.w for bandit in slow], rtol=0, atol=1e-9)
        for bandit in slow:
            assert state.counts.tolist() == bandit.N
        np.testing.assert_allclose(bandits_vote.scores(state, ucb_scale=UCB), [bandit.scores() for bandit in slow], rtol=0, atol=1e-9)
        mean = [oracle.average_evaluation(slow, i) for i in range(slow[0].num_tiles)]
        np.testing.assert_allclose(bandits_vote.evaluation(state), mean, rtol=0, atol=1e-9)
        tiles = bandits_vote.candidate_tiles(state, num_candidates=CANDIDATES, ucb_scale=UCB, generator=generator)
        for bandit, row in zip(slow, tiles, strict=True):
            assert len(set(row.tolist())) == CANDIDATES
            if bandit.mode == "argmax":
                chosen = sorted((bandit.scores()[tile] for tile in row), reverse=True)
                np.testing.assert_allclose(chosen, bandit.top_scores(), rtol=0, atol=1e-9)


def test_mode_random_samples_tiles_by_their_scores_without_replacement() -> None:
    few = Tiling(accuracy=0.7, min_inverse_temperature=0.0, max_inverse_temperature=50.0)
    many = 200  # identical bandits, so that one call samples 200 times
    state = ensemble("r" * many, widths=(1,) * many, tiling=few, rates=(0.3,) * many)
    [slow] = [oracle.Bandit("random", 0.0, math.log(51), 0.7, 1, 0.3, 3, UCB)]
    for x, g in [(0.1, 3.0), (1.0, -2.0), (1.0, 5.0), (3.9, 1.0), (2.2, 4.0), (2.2, 6.0)]:
        state = bandits_vote.update(state, x, g)
        slow.update(x, g)
    generator = np.random.default_rng(3)
    counts = np.zeros(few.num_tiles)
    calls = 200
    for _ in range(calls):
        tiles = bandits_vote.candidate_tiles(state, num_candidates=3, ucb_scale=UCB, generator=generator)
        counts += np.bincount(tiles.ravel(), minlength=few.num_tiles)
    samples = calls * many
    expected = np.array(slow.chance_of_being_sampled())
    assert np.ptp(expected) > 0.4  # the scores make a difference
    # Five standard errors of a frequency. A draw with replacement or by rank is off by tens.
    np.testing.assert_allclose(counts / samples, expected, rtol=0, atol=5 * math.sqrt(0.25 / samples))


def test_draws_are_uniform_over_candidates_and_within_tiles() -> None:
    state = bandits_vote.update(ensemble("aa", widths=(3, 1)), 2.05, 10.0)
    generator = np.random.default_rng(5)
    draws = [bandits_vote.draw(state, num_candidates=2, ucb_scale=0.0, generator=generator) for _ in range(4000)]
    tiles = np.array([PAPER.tile(draw.x) for draw in draws])
    # Each bandit proposes tile 20 and either 19 or 21, which are equal.
    expected = np.zeros(39)
    expected[[19, 20, 21]] = 0.25, 0.5, 0.25
    share = np.bincount(tiles, minlength=39) / len(tiles)
    np.testing.assert_allclose(share, expected, rtol=0, atol=5 * math.sqrt(0.25 / len(tiles)))
    assert set(np.flatnonzero(share)) == {19, 20, 21}
    within = (np.array([draw.x for draw in draws]) - PAPER.edges()[tiles]) / np.diff(PAPER.edges())[tiles]
    assert abs(within.mean() - 0.5) < 0.03
    assert abs(within.var() - 1 / 12) < 0.01


def test_an_untried_ensemble_prefers_no_tile() -> None:
    generator = np.random.default_rng(0)
    for modes in ("aaaaaaa", "rrrrrrr"):
        state = ensemble(modes)
        tiles = [PAPER.tile(bandits_vote.draw(state, num_candidates=7, ucb_scale=UCB, generator=generator).x) for _ in range(4000)]
        share = np.bincount(tiles, minlength=39) / len(tiles)
        assert np.abs(share - 1 / 39).max() < 5 * math.sqrt(1 / 39 / 4000)


def test_the_tiling_matches_the_paper() -> None:
    assert PAPER.num_tiles == 39 == math.floor(math.log(51) / 0.1)
    assert [PAPER.tile(x) for x in (-5.0, 0.0, 0.099, 0.101, 3.79, 3.81, 3.9, PAPER.high, 50.0)] == [0, 0, 0, 1, 37, 38, 38, 38, 38]
    edges = PAPER.edges()
    assert (len(edges), edges[0], edges[-1]) == (40, 0.0, math.log(51))
    shifted = Tiling(accuracy=0.5, min_inverse_temperature=1.0, max_inverse_temperature=50.0)
    assert [shifted.tile(x) for x in (0.0, math.log(2), math.log(2) + 0.51, math.log(51))] == [0, 0, 1, shifted.num_tiles - 1]
    assert x_of(0.0) == 0.0  # tau infinite: the uniform policy
    assert oracle.temperature_of(x_of(4.0)) == pytest.approx(0.25)
    assert x_of(1 / 0.25) == pytest.approx(oracle.x_of(0.25))


def test_equal_values_have_score_0_without_the_bonus() -> None:
    state = ensemble("ar", widths=(2, 3))
    np.testing.assert_array_equal(bandits_vote.scores(state, ucb_scale=UCB), 0.0)
    # The values are equal except for rounding: 0.1 + 0.1 + 0.1 is not 3 x 0.1.
    flat = ensemble_of(
        PAPER,
        modes=state.modes,
        learning_rates=state.learning_rates,
        widths=state.widths,
        weights=np.full((2, 39), 0.1),
        counts=np.zeros(39, np.int64),
    )
    assert np.ptp(bandits_vote.tile_values(flat)) > 0
    np.testing.assert_array_equal(bandits_vote.scores(flat, ucb_scale=UCB), 0.0)


def best_tiles(state: BanditsVote) -> list[int]:
    return list(bandits_vote.best_tiles(bandits_vote.evaluation(state), state.counts))


def test_evaluation_draws_from_the_best_tile_tried() -> None:
    generator = np.random.default_rng(1)
    state = ensemble()
    assert best_tiles(state) == list(range(39))  # nothing has been reported yet
    for x, g in [(0.55, -20.0), (1.55, -18.0), (3.55, -21.0)] * 30:
        state = bandits_vote.update(state, x, g)
    # Untried tiles are valued 0, a return that never occurred in this game.
    assert bandits_vote.evaluation(state).argmax() not in (5, 15, 35)
    assert best_tiles(state) == [15]
    xs = [bandits_vote.draw_within(PAPER, 15, generator) for _ in range(200)]
    assert {PAPER.tile(x) for x in xs} == {15}
    assert np.ptp(xs) > 0.09


tiles_and_returns = st.lists(st.tuples(st.floats(-1, 5), st.floats(-1e6, 1e6, allow_subnormal=False)), min_size=0, max_size=30)


def after(reports: list[tuple[float, float]], start: BanditsVote | None = None) -> BanditsVote:
    state = start or ensemble()
    for x, g in reports:
        state = bandits_vote.update(state, x, g)
    return state


@settings(max_examples=60, deadline=None)
@given(tiles_and_returns, st.floats(-1, 5), st.floats(-1e6, 1e6))
def test_an_update_moves_the_tile_value_by_the_learning_rate(reports: list[tuple[float, float]], x: float, g: float) -> None:
    before = after(reports)
    changed = bandits_vote.update(before, x, g)
    tile = PAPER.tile(x)
    old, new = bandits_vote.tile_values(before)[:, tile], bandits_vote.tile_values(changed)[:, tile]
    np.testing.assert_allclose(new, old + np.array(before.learning_rates) * (g - old), rtol=1e-9, atol=1e-6)
    for bandit, width in enumerate(before.widths):
        far = np.abs(np.arange(39) - tile) > width
        np.testing.assert_array_equal(changed.weights[bandit, far], before.weights[bandit, far])
    assert changed.counts.sum() == before.counts.sum() + 1
    assert changed.counts[tile] == before.counts[tile] + 1


@settings(max_examples=60, deadline=None)
@given(tiles_and_returns, st.integers(0, 2**32 - 1), st.sampled_from([2.0**20, 2.0**-10, 2.0**100]))
def test_the_scale_of_returns_does_not_change_draws(reports: list[tuple[float, float]], seed: int, scale: float) -> None:
    # Powers of two, so that even rounding is the same.
    plain, scaled = after(reports), after([(x, g * scale) for x, g in reports])
    one = bandits_vote.draw(plain, num_candidates=7, ucb_scale=UCB, generator=np.random.default_rng(seed))
    other = bandits_vote.draw(scaled, num_candidates=7, ucb_scale=UCB, generator=np.random.default_rng(seed))
    assert one.x == other.x
    np.testing.assert_array_equal(one.candidate_tiles, other.candidate_tiles)


@settings(max_examples=60, deadline=None)
@given(tiles_and_returns, st.integers(0, 2**32 - 1))
def test_a_draw_is_within_the_range_and_from_a_candidate(reports: list[tuple[float, float]], seed: int) -> None:
    state = after(reports)
    generator = np.random.default_rng(seed)
    vote = bandits_vote.draw(state, num_candidates=7, ucb_scale=UCB, generator=generator)
    assert 0.0 <= vote.x <= PAPER.high
    assert vote.candidate_tiles.shape == (7, 7)
    assert all(len(set(row)) == 7 for row in vote.candidate_tiles.tolist())
    near = {PAPER.tile(vote.x + nudge) for nudge in (-1e-12, 0.0, 1e-12)}  # on an edge, rounding may choose either tile
    assert near & set(vote.candidate_tiles.ravel().tolist())


@settings(deadline=None)
@given(st.floats(0, 50))
def test_x_of_and_inverse_temperature_of_are_inverse(inverse_temperature: float) -> None:
    assert inverse_temperature_of(x_of(inverse_temperature)) == pytest.approx(inverse_temperature, rel=1e-12, abs=1e-300)


def test_states_are_immutable() -> None:
    one = after([(1.0, 2.0)])
    with pytest.raises(ValueError, match="read-only"):
        one.weights[0, 0] = 1.0
    before = one.weights.copy()
    bandits_vote.update(one, 1.0, 9.0)
    np.testing.assert_array_equal(one.weights, before)


def test_modes_rates_and_widths_are_drawn_uniformly_from_the_choices() -> None:
    made = [
        new_ensemble(
            PAPER,
            num_bandits=7,
            modes=("argmax", "random"),
            learning_rates=(0.05, 0.1, 0.2),
            widths=(1, 2, 3),
            generator=np.random.default_rng(seed),
        )
        for seed in range(60)
    ]
    for attribute, choices in (("modes", {"argmax", "random"}), ("learning_rates", {0.05, 0.1, 0.2}), ("widths", {1, 2, 3})):
        drawn = [value for state in made for value in getattr(state, attribute)]
        assert set(drawn) == choices
        for choice in choices:  # uniform, within five standard errors of 420 draws
            assert abs(drawn.count(choice) / 420 - 1 / len(choices)) < 5 * math.sqrt(0.25 / 420)
