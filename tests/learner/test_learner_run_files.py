"""When the disk fails, writes of curve, report and lineage are counted and logged, and the next write works."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from herd_learner.record.records import RunFiles

from herd.components.trackers.api import Tracker
from herd.components.trackers.publishing import Trackers
from herd.run.journals import METRICS
from herd.run.paths import REPORT
from tests.failing_disks import no_space_beyond

pytestmark = pytest.mark.usefixtures("log")


def test_a_full_disk_loses_the_point_but_not_the_curve(tmp_path: Path, log: io.StringIO) -> None:
    failed: list[str] = []
    files = RunFiles(tmp_path, failed.append)
    files.add_point({"env_frames": 1})
    files.write_report({"env_frames": 1})
    with no_space_beyond(5):
        for _ in range(3):
            files.add_point({"env_frames": 2})
        assert files.write_report({"env_frames": 2}) is False
        files.keep_lineage(3)
    assert failed == [METRICS] * 3 + [REPORT, "lineage.json"]
    lines = log.getvalue().splitlines()
    assert len(lines) == 3  # one line per minute and file
    assert all("cannot write a file of the run" in line and "File too large" in line for line in lines)
    assert str(tmp_path / METRICS) in lines[0]
    files.add_point({"env_frames": 3})
    assert (tmp_path / METRICS).read_text() == '{"env_frames": 1}\n{"env_frames": 3}\n'
    assert json.loads((tmp_path / REPORT).read_text()) == {"env_frames": 1}
    assert files.write_report({"env_frames": 3}) is True
    files.keep_lineage(3)
    assert json.loads((tmp_path / REPORT).read_text()) == {"env_frames": 3}
    assert json.loads((tmp_path / "lineage.json").read_text()) == {"lineage": 3}
    assert len(failed) == 5


def test_a_removed_run_directory_does_not_end_the_learner(tmp_path: Path) -> None:
    failed: list[str] = []
    files = RunFiles(tmp_path / "gone", failed.append)
    files.add_point({})
    files.write_report({})
    files.keep_lineage(1)
    assert failed == [METRICS, REPORT, "lineage.json"]


def test_viewers_get_every_point_also_those_not_written(tmp_path: Path) -> None:
    taken: list[object] = []

    class Viewer(Tracker):
        def on_point(self, point: object) -> None:
            taken.append(point)

        def on_end(self) -> None:
            taken.append("closed")

    files = RunFiles(tmp_path, lambda _file: None, Trackers({"viewer": Viewer}))
    files.add_point({"env_frames": 1})
    with no_space_beyond(5):
        files.add_point({"env_frames": 2})
    files.close()
    files.close()
    assert taken == [{"env_frames": 1}, {"env_frames": 2}, "closed"]
