from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from herd.config.run import StopSettings
from herd.launch.readings import Readings
from herd.run.journals import METRICS
from herd.view.series import SPARKLINE_WIDTH, ReturnHistory, sparkline
from herd.view.snapshot import SnapshotMaker
from herd.view.terminal import earlier_points


def task(value: float | None, episodes: int = 100) -> dict[str, object]:
    return {"episode_return_mean_100": value, "episodes": episodes}


@pytest.mark.parametrize("count", [1, 127, 128, 129, 1000, 4096])
def test_the_history_is_bounded_and_holds_means_of_equal_windows(count: int) -> None:
    points = np.random.default_rng(count).normal(size=count)
    history = ReturnHistory()
    for value in points:
        history.add(task(float(value)))
    per_value = 1
    while count // per_value >= 128:
        per_value *= 2
    expected = [points[start : start + per_value].mean() for start in range(0, count, per_value)]
    np.testing.assert_allclose(history.values, expected)
    assert history.best == points.max()


def test_the_best_return_needs_a_full_window_of_games() -> None:
    history = ReturnHistory()
    for value, episodes in ((None, 0), (9.0, 99), (-1.0, 100), (3.0, 101), (2.0, 102)):
        history.add(task(value, episodes))
    assert (history.best, history.values) == (3.0, (9.0, -1.0, 3.0, 2.0))


def test_a_sparkline_spans_the_lowest_to_the_highest_mean() -> None:
    assert sparkline([]) == sparkline([1.0]) == ""
    assert sparkline([2.0, 2.0, 2.0]) == "▁▁▁"
    assert sparkline([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]) == "▁▂▃▄▅▆▇█"
    # 32 values in 16 cells: each shows the mean of a pair.
    assert sparkline([float(value) for pair in range(16) for value in (7 * pair / 15 - 5, 7 * pair / 15 + 5)]) == "▁▁▂▂▃▃▄▄▅▅▆▆▇▇██"
    assert len(sparkline([float(value) for value in range(37)])) == SPARKLINE_WIDTH


def test_a_resumed_run_continues_the_return_history(tmp_path: Path) -> None:
    def point(seconds: float, value: float) -> dict[str, object]:
        return {"wall_seconds": seconds, "env_frames": 10 * seconds, "entropy": 0.5, "tasks": {"pong": task(value)}}

    assert list(earlier_points(tmp_path)) == []
    # The run went back from 30 s to 20 s: returns after 20 s do not belong to any later policy.
    earlier = [point(10, -20.0), point(20, 5.0), point(30, 19.0), point(21, 6.0)]
    (tmp_path / METRICS).write_text("".join(json.dumps(each) + "\n" for each in earlier) + '{"torn')
    maker = SnapshotMaker(StopSettings(), earlier_points(tmp_path))
    for _ in range(2):  # the same point, read twice
        picture = maker.make(Readings(point=point(25, 4.0)), [], 1.0)
    [row] = picture.tasks
    assert (row.best_return, row.returns, picture.entropy) == (6.0, (-20.0, 5.0, 6.0, 4.0), 0.5)
    (tmp_path / METRICS).write_text("not json\n{}\n")
    assert list(earlier_points(tmp_path)) == []
