from __future__ import annotations

import json
from pathlib import Path

import pytest

from herd.config.run import StopSettings
from herd.launch.readings import Readings
from herd.run.journals import METRICS
from herd.view.series import GameLength, ReturnHistory
from herd.view.snapshot import SnapshotMaker
from herd.view.terminal import earlier_points


def task(value: float | None, episodes: int = 100) -> dict[str, object]:
    return {"episode_return_mean_100": value, "episodes": episodes}


def test_the_best_return_needs_a_full_window_of_games() -> None:
    history = ReturnHistory()
    for value, episodes in ((None, 0), (9.0, 99), (-1.0, 100), (3.0, 101), (2.0, 102)):
        history.add(task(value, episodes))
    assert (history.first, history.best) == (-1.0, 3.0)


@pytest.mark.parametrize(
    ("games_later", "points_later", "times"),
    [
        (40, 800.0, 1.0),  # as before
        (2, 400.0, 1.0),  # an agent that survives twenty times as long and scores half as much per frame
        (2, -79.0, 20.0),  # one that waits: less than a tenth of the points per frame, whatever their sign
        (2, -80.0, 1.0),
        (0, 0.0, 40.0),  # no game ended: as if the newest one ended now
        (40, 0.0, 1.0),  # bad luck
    ],
)
def test_games_that_last_longer_and_score_nothing_wait(games_later: int, points_later: float, times: float) -> None:
    length = GameLength()

    def add(frames: int, games: int, points: float) -> float:
        length.add({"env_frames": frames, "episodes": games, "episode_return_sum": points})
        return length.times_longer

    # 10,000 frames for each game of 20 points; the window is the newest 400,000 frames of 4 million.
    assert [add(frames, frames // 10_000, frames / 500) for frames in range(0, 3_600_001, 100_000)] == [1.0] * 37
    assert add(4_000_000, 360 + games_later, 7200.0 + points_later) == pytest.approx(times)
    assert add(4_000_000, 360, 7200.0) == pytest.approx(times)  # the same point again
    length.add({"env_frames": 5_000_000, "episodes": 361})  # of a run without sums
    assert length.times_longer == pytest.approx(times)


def test_the_first_games_do_not_wait() -> None:
    length = GameLength()
    for frames, games, points in ((0, 0, 0.0), (1000, 50, 500.0), (2000, 51, 500.0), (100_000, 99, 500.0)):
        length.add({"env_frames": frames, "episodes": games, "episode_return_sum": points})
        assert length.times_longer == 1.0


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
    assert (row.first_return, row.best_return, picture.entropy) == (-20.0, 6.0, 0.5)
    (tmp_path / METRICS).write_text("not json\n{}\n")
    assert list(earlier_points(tmp_path)) == []
