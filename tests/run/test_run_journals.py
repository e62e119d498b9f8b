"""Journals of a run: what readers leave out, and that no file grows without bound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from herd.files import FileError
from herd.run.journals import METRICS, add_point, frames_at, newest_point, read_points, stream_points


def point(seconds: float, frames: float | None = None) -> dict[str, float]:
    return {"wall_seconds": seconds, "env_frames": 10 * seconds if frames is None else frames, "learner_updates": int(seconds)}


def test_a_learning_curve_is_thinned_evenly_when_it_is_too_long(tmp_path: Path) -> None:
    longest = 0
    for number in range(1000):
        add_point(tmp_path, point(float(number)), max_bytes=4000)
        longest = max(longest, (tmp_path / METRICS).stat().st_size)
    kept = [each["wall_seconds"] for each in read_points(tmp_path)]
    assert longest < 4200
    assert (kept[0], kept[-1]) == (0.0, 999.0)
    quarters = [sum(start <= each < start + 250 for each in kept) for start in range(0, 1000, 250)]
    assert min(quarters) >= 3
    assert max(quarters[:3]) <= 2 * min(quarters[:3])  # points stay equally dense, however often the file was thinned


def test_thinning_keeps_what_shows_a_resumption(tmp_path: Path) -> None:
    for seconds in (1.0, 2.0, 3.0, 4.0, 2.5):
        add_point(tmp_path, point(seconds))
    before = read_points(tmp_path)
    assert [each["wall_seconds"] for each in before] == [1.0, 2.0, 2.5]
    add_point(tmp_path, point(3.5), max_bytes=1)
    assert [each["wall_seconds"] for each in read_points(tmp_path)] == [1.0, 2.5, 3.5]


def test_points_are_streamed_without_superseded_ones(tmp_path: Path) -> None:
    for seconds, frames in ((1.0, 10.0), (2.0, 20.0), (3.0, 30.0), (2.5, 15.0), (4.0, 40.0)):
        add_point(tmp_path, point(seconds, frames))
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"wall_seconds": 5.0, "env_frames": 50.0}')  # not complete without its end
    assert list(stream_points(tmp_path)) == read_points(tmp_path)
    assert [each["env_frames"] for each in read_points(tmp_path)] == [10.0, 15.0, 40.0]


@pytest.mark.parametrize("torn", [b'{"env_frames": 120, "wall', b"{}", b"12", b'{"name": "\xc3'])
def test_an_incomplete_last_line_is_left_out(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / METRICS).write_bytes(json.dumps(point(1.0)).encode() + b"\n" + torn)
    assert read_points(tmp_path) == list(stream_points(tmp_path)) == [point(1.0)]


def test_the_newest_point_is_the_last_complete_line(tmp_path: Path) -> None:
    assert newest_point(tmp_path) == {}
    (tmp_path / METRICS).write_text(json.dumps(point(1.0)) + "\n" + json.dumps(point(2.0)) + '\n{"env_fra')
    assert newest_point(tmp_path) == point(2.0)


def test_frames_are_interpolated_between_points(tmp_path: Path) -> None:
    assert frames_at(tmp_path, 3) is None
    for seconds in (4.0, 8.0):
        add_point(tmp_path, point(seconds))
    assert [frames_at(tmp_path, updates) for updates in (0, 2, 4, 7, 8, 9)] == [0, 20, 40, 70, 80, None]


@pytest.mark.parametrize("line", ["[]", "{}", '{"env_frames": true, "wall_seconds": 1}', '{"env_frames": 1, "wall_seconds": NaN}', "{"])
def test_a_line_that_is_no_point_is_an_error_with_its_number(tmp_path: Path, line: str) -> None:
    (tmp_path / METRICS).write_text(f"{json.dumps(point(1.0))}\n{line}\n")
    with pytest.raises(FileError, match="line 2, is not a point of a curve"):
        read_points(tmp_path)
    with pytest.raises(FileError, match="line 2, is not a point of a curve"):
        list(stream_points(tmp_path))
