from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from herd.cli.main import main
from herd.files import FileError
from herd.view.plots.bandit import heat_of, read_bandit_history

EDGES = [0.0, 1.0, 3.0, 10.0]


def record(
    episodes: int,
    values: tuple[float, ...] = (1.0, 2.0, 3.0),
    *,
    reports: tuple[int, ...] = (1, 1, 1),
    handed_out: tuple[int, ...] = (0, 0, 0),
    task: str = "pong",
    agent: int = 0,
    edges: list[float] | None = None,
) -> str:
    return json.dumps(
        {
            "agent": agent,
            "task": task,
            "episodes": episodes,
            "env_frames": 1000 * episodes,
            "seconds": 1.0,
            "edges": edges or EDGES,
            "values": values,
            "reports": reports,
            "return_sums": [0.0] * len(values),
            "handed_out": handed_out,
            "votes": [0] * len(values),
        }
    )


def make_run(tmp_path: Path, *lines: str, end: str = "\n") -> Path:
    (tmp_path / "run" / "bandit").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text("name: run\n")
    (tmp_path / "run" / "bandit" / "history.jsonl").write_text("\n".join(lines) + end)
    return tmp_path / "run"


def test_columns_hold_values_and_shares_since_the_last_column(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        record(2, (5.0, -9.0, 0.0), reports=(2, 0, 0), handed_out=(3, 0, 1)),
        record(6, (5.0, -4.0, 7.0), reports=(4, 1, 1), handed_out=(3, 0, 5)),
        record(7, (6.0, -4.0, 5.0), reports=(5, 1, 1), handed_out=(3, 0, 5)),
    )
    heat = heat_of(read_bandit_history(run))
    assert heat.x_edges.tolist() == [0.0, 2000.0, 6000.0, 7000.0]
    # An untried tile has a value only from its neighbours; it is not shown, and is never the best.
    np.testing.assert_array_equal(heat.values, [[5.0, np.nan, np.nan], [5.0, -4.0, 7.0], [6.0, -4.0, 5.0]])
    np.testing.assert_array_equal(heat.shares, [[0.75, 0.0, 0.25], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    middles = [np.sqrt((1 + low) * (1 + high)) - 1 for low, high in pairwise(EDGES)]
    assert heat.best.tolist() == pytest.approx([middles[0], middles[2], middles[0]])


def test_the_number_of_drawn_columns_is_limited(tmp_path: Path) -> None:
    lines = [record(game, (0.0, float(game), 0.0), handed_out=(game, 0, 0)) for game in range(1, 2001)]
    history = read_bandit_history(make_run(tmp_path, *lines))
    heat = heat_of(history, most_columns=100)
    assert len(heat.values) <= 100
    assert heat.x_edges[-1] == 2_000_000
    assert heat.values[-1, 1] == 2000.0
    np.testing.assert_array_equal(heat.shares, np.tile([1.0, 0.0, 0.0], (len(heat.values), 1)))


def test_records_discarded_by_a_restored_service_are_dropped(tmp_path: Path) -> None:
    run = make_run(tmp_path, record(1), record(5, (9.0, 9.0, 9.0)), record(6), record(4), record(5), '{"agent": 0, "ta', end="")
    history = read_bandit_history(run)
    assert history.episodes.tolist() == [1, 4, 5]
    assert history.values[-1].tolist() == [1.0, 2.0, 3.0]


def test_only_records_of_the_newest_tiling_are_drawn(tmp_path: Path) -> None:
    run = make_run(tmp_path, record(1), record(2), record(3, edges=[0.0, 2.0, 5.0, 10.0]))
    assert read_bandit_history(run).episodes.tolist() == [3]


def test_one_of_several_tasks_can_be_chosen(tmp_path: Path) -> None:
    run = make_run(tmp_path, record(1), record(2, task="ms_pacman"), record(3, task="ms_pacman", agent=1))
    with pytest.raises(FileError, match="has records of 2 tasks; choose one with --task: pong, ms_pacman"):
        read_bandit_history(run)
    assert read_bandit_history(run, task="ms_pacman").episodes.tolist() == [2]
    assert read_bandit_history(run, agent=1).episodes.tolist() == [3]
    with pytest.raises(FileError, match="no records of qbert; it has records of pong, ms_pacman"):
        read_bandit_history(run, task="qbert")
    with pytest.raises(FileError, match="no records of agent 7 yet"):
        read_bandit_history(run, agent=7)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["nonsense", record(1)], "line 1, is not a record of a bandit"),
        ([record(1, (1.0, 2.0)), record(1)], "line 1, is not a record of a bandit: 2 values for 3 tiles"),
        (["[]", record(1)], "line 1"),
    ],
)
def test_unreadable_records_are_refused_in_one_line(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(FileError, match=message) as caught:
        read_bandit_history(make_run(tmp_path, *lines))
    assert "\n" not in str(caught.value)


def test_the_command_writes_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = [record(game, (1.0, 2.0, 3.0), handed_out=(0, 0, game)) for game in range(1, 20)]
    second = [record(game, (3.0, 2.0, 1.0), handed_out=(game - 20, 0, 20)) for game in range(20, 40)]
    run = make_run(tmp_path, *first, *second)
    assert main(["plot", "--bandit", str(run)]) == 0
    assert capsys.readouterr().out.strip() == str(run / "bandit.png")
    picture = matplotlib.image.imread(run / "bandit.png")[..., :3]
    height, width, _ = picture.shape
    upper, left, right = slice(height // 8, 2 * height // 5), slice(width // 8, width // 3), slice(width // 2, 4 * width // 5)
    # The best tile moved from the top to the bottom: yellow and violet changed places.
    brightness = picture[..., 1]
    assert brightness[upper, left][:20].mean() > brightness[upper, left][-20:].mean() + 0.3
    assert brightness[upper, right][-20:].mean() > brightness[upper, right][:20].mean() + 0.3
