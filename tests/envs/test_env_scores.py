from __future__ import annotations

import numpy as np
import pytest

from herd.components.suites.atari import atari_scores
from herd.components.suites.dmlab.levels import reference_scores
from herd.components.suites.scores import ReferenceScores, aggregates, human_normalised, interquartile_mean, record_normalised


def test_tables_are_complete() -> None:
    atari, dmlab = atari_scores(), reference_scores()
    assert (len(atari), len(dmlab)) == (57, 30 + 2)  # two levels have a variant for training
    assert atari["breakout"] == ReferenceScores("breakout", 1.7, 30.5, 864.0, 4)
    assert dmlab["rooms_watermaze"] == ReferenceScores("rooms_watermaze", 4.065, 54.0, None, None)
    assert all(game.human > game.random and game.world_record is not None for game in atari.values())
    assert all(3 <= (game.minimal_actions or 0) <= 18 for game in atari.values())


def test_reference_scores_map_to_0_and_1() -> None:
    for table in (atari_scores(), reference_scores()):
        for task in table.values():
            np.testing.assert_allclose(human_normalised([task.random, task.human], task), [0.0, 1.0], atol=1e-12)
    for game in atari_scores().values():
        assert game.world_record is not None
        np.testing.assert_allclose(record_normalised([game.random, game.world_record], game), [0.0, 1.0], atol=1e-12)


def test_caps_limit_scores_only_from_above() -> None:
    task = ReferenceScores("t", 10.0, 20.0, 60.0, None)
    scores = [0.0, 15.0, 20.0, 1_000.0]
    np.testing.assert_allclose(human_normalised(scores, task), [-1.0, 0.5, 1.0, 99.0])
    np.testing.assert_allclose(record_normalised(scores, task), [-0.2, 0.1, 0.2, 2.0])
    for score, capped in zip(scores, (-1.0, 0.5, 1.0, 1.0), strict=True):
        assert aggregates([[score]], [task])["mean_capped"] == pytest.approx(capped)


def test_aggregates_agree_with_a_manual_calculation() -> None:
    # The normalised scores are 2 for breakout ((59.3 - 1.7) / 28.8), 0.5 for enduro, and 0 (random play) for pong.
    games = [atari_scores()[name] for name in ("breakout", "enduro", "pong")]
    found = aggregates([[59.3, 430.25, -20.7]], games)
    records = [57.6 / 862.3, 430.25 / 9500, 0.0]
    by_hand = {"mean": 2.5 / 3, "median": 0.5, "mean_capped": 0.5, "interquartile_mean": 2.5 / 3}
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        by_hand | {"saber_mean": sum(records) / 3, "saber_median": records[1]}
    )


def test_aggregates_combine_several_runs_of_a_task() -> None:
    tasks = [ReferenceScores(name, 0.0, 100.0, 200.0, None) for name in "ab"]
    # Rows are runs, columns are tasks. Task scores: (40 + 180) / 2 = 110 and (-20 + 60) / 2 = 20.
    found = aggregates([[40.0, -20.0], [180.0, 60.0]], tasks)
    assert found["mean"] == pytest.approx(0.65)
    assert found["median"] == pytest.approx(0.65)
    assert found["mean_capped"] == pytest.approx(0.6)  # the task's 1.1 is capped, rather than the run's 1.8
    assert found["interquartile_mean"] == pytest.approx(0.5)  # one value is dropped at each end of -0.2, 0.4, 0.6 and 1.8
    assert found["saber_mean"] == pytest.approx(0.325)
    far = aggregates([[-600.0, 1_000.0]], tasks)
    assert far["saber_mean"] == pytest.approx((-3.0 + 2.0) / 2)  # capped above, without a floor
    # The leading axis holds resamples of the same runs.
    both = aggregates([[[40.0, -20.0], [180.0, 60.0]], [[-600.0, 1_000.0], [-600.0, 1_000.0]]], tasks)
    assert both["saber_mean"].tolist() == pytest.approx([0.325, -0.5])
    assert both["interquartile_mean"].tolist() == pytest.approx([0.5, 2.0])


def test_dmlab_has_no_records() -> None:
    assert set(aggregates([[54.0]], [reference_scores()["rooms_watermaze"]])) == {"mean", "median", "mean_capped", "interquartile_mean"}
    with pytest.raises(ValueError, match="rooms_watermaze"):
        record_normalised(1.0, reference_scores()["rooms_watermaze"])


def test_the_interquartile_mean_drops_a_quarter_at_each_end() -> None:
    assert interquartile_mean([100.0, 3.0, -50.0, 2.0]) == 2.5
    assert interquartile_mean([7.0]) == 7.0
    # Of ten values, two (2.5 rounded down) are dropped at each end.
    ten = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 90.0, 100.0]
    assert interquartile_mean([ten, ten[::-1]]).tolist() == pytest.approx([np.mean([2, 3, 4, 5, 6, 8])] * 2)
    with pytest.raises(ValueError, match="at least one"):
        interquartile_mean([])
