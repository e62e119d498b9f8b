from __future__ import annotations

import json
from pathlib import Path

from herd.config.run import StopSettings
from herd.launch.readings import Readings
from herd.run.journals import METRICS
from herd.view.series import ReturnHistory
from herd.view.snapshot import SnapshotMaker
from herd.view.terminal import earlier_points


def task(value: float | None, episodes: int = 100) -> dict[str, object]:
    return {"episode_return_mean_100": value, "episodes": episodes}


def test_the_best_return_needs_a_full_window_of_games() -> None:
    history = ReturnHistory()
    for value, episodes in ((None, 0), (9.0, 99), (-1.0, 100), (3.0, 101), (2.0, 102)):
        history.add(task(value, episodes))
    assert (history.first, history.best) == (-1.0, 3.0)


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
