from __future__ import annotations

import numpy as np
import pytest

from herd.envs.api import UnknownTaskError
from herd.envs.scores import (
    ReferenceScores,
    capped_human_normalised,
    dmlab_scores,
    human_normalised,
    interquartile_mean,
    record_normalised,
    summarise,
)
from herd.envs.suites.atari import atari_scores


def test_tables_are_complete() -> None:
    atari, dmlab = atari_scores(), dmlab_scores()
    assert (len(atari), len(dmlab)) == (57, 30)
    assert atari["breakout"] == ReferenceScores("breakout", 1.7, 30.5, 864.0, 4)
    assert dmlab["rooms_watermaze"] == ReferenceScores("rooms_watermaze", 4.065, 54.0, None, None)
    assert all(game.human > game.random and game.world_record is not None for game in atari.values())
    assert all(3 <= (game.minimal_actions or 0) <= 18 for game in atari.values())


def test_references_map_to_zero_and_one() -> None:
    for table in (atari_scores(), dmlab_scores()):
        for task in table.values():
            np.testing.assert_allclose(human_normalised([task.random, task.human], task), [0.0, 1.0], atol=1e-12)
    for game in atari_scores().values():
        assert game.world_record is not None
        np.testing.assert_allclose(record_normalised([game.random, game.world_record], game), [0.0, 1.0], atol=1e-12)


def test_caps_bound_above_and_not_below() -> None:
    task = ReferenceScores("t", 10.0, 20.0, 60.0, None)
    scores = [0.0, 15.0, 20.0, 1_000.0]
    np.testing.assert_allclose(human_normalised(scores, task), [-1.0, 0.5, 1.0, 99.0])
    np.testing.assert_allclose(capped_human_normalised(scores, task), [-1.0, 0.5, 1.0, 1.0])
    np.testing.assert_allclose(record_normalised(scores, task), [-0.2, 0.1, 0.2, 2.0])


def test_summary_by_hand() -> None:
    # Normalised: breakout (30.5 * 2 - 1.7 - 1.7) / 28.8 = 2, enduro 0.5, pong 0 at random play.
    summary = summarise({"breakout": 59.3, "enduro": 430.25, "pong": -20.7}, atari_scores())
    assert summary.num_tasks == 3
    assert summary.mean == pytest.approx(2.5 / 3)
    assert summary.median == pytest.approx(0.5)
    assert summary.mean_capped == pytest.approx(1.5 / 3)
    assert summary.saber == pytest.approx((57.6 / 862.3 + 430.25 / 9500 + 0.0) / 3)


def test_dmlab_has_no_records() -> None:
    assert summarise({"rooms_watermaze": 54.0}, dmlab_scores()).saber is None
    with pytest.raises(ValueError, match="rooms_watermaze"):
        record_normalised(1.0, dmlab_scores()["rooms_watermaze"])


def test_unknown_and_missing_tasks_are_refused() -> None:
    with pytest.raises(UnknownTaskError, match="tetris"):
        summarise({"pong": 1.0, "tetris": 1.0}, atari_scores())
    with pytest.raises(ValueError, match="at least one"):
        summarise({}, atari_scores())


def test_interquartile_mean_leaves_out_a_quarter_at_each_end() -> None:
    assert interquartile_mean([100.0, 3.0, -50.0, 2.0]) == 2.5
    assert interquartile_mean([7.0]) == 7.0
    # Ten values: two (2.5 rounded down) go at each end.
    assert interquartile_mean([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 90.0, 100.0]) == np.mean([2, 3, 4, 5, 6, 8])
    with pytest.raises(ValueError, match="at least one"):
        interquartile_mean([])
