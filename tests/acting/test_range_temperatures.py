from __future__ import annotations

import numpy as np

from herd.acting.temperatures import RangeTemperatures


def test_each_game_draws_a_temperature_from_its_tasks_range() -> None:
    tasks = np.array([0, 1] * 50, np.int32)
    games = RangeTemperatures(((8.0, 9.0), (0.0, 0.1)), tasks, seed=1)
    first = games.of_row(np.ones(100, np.bool_)).copy()
    assert ((first[::2] >= 8.0) & (first[::2] <= 9.0)).all()
    assert ((first[1::2] >= 0.0) & (first[1::2] <= 0.1)).all()
    assert len(set(first.tolist())) > 90
    # Rows that start no game change nothing; a row that starts one changes only its own environment.
    np.testing.assert_array_equal(games.of_row(np.zeros(100, np.bool_)), first)
    again = games.of_row(np.arange(100) == 4)
    assert np.flatnonzero(again != first).tolist() == [4]
