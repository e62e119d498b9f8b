"""Killed at every edge of a learner's and a supervisor's files, written by the functions that they use."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from herd.run.checkpoints import newest_checkpoint, verified_contents
from herd.run.journals import read_points
from herd.run.settings import read_config
from tests.failpoints.child import KILLED, RECORDED
from tests.failpoints.points import rows
from tests.failpoints.writer import MAX_CURVE_BYTES, files_of
from tests.system.whole_runs import ROOT

pytestmark = pytest.mark.processes

POINTS = [point for row in rows("writer") for point in row.points]


class Writer:
    """A process that forks a writer for each order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        command = [sys.executable, "-m", "tests.failpoints.writer", str(folder)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def write(self, point: str, count: int) -> tuple[bool, list[tuple[str, int]]]:
        """Have everything written; return whether the point was reached, which killed the writer, and what was promised."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{point}\t{count}\twriter\n")
        self._process.stdin.flush()
        promised: list[tuple[str, int]] = []
        for line in self._process.stdout:
            what, number = line.split()
            if what == "exit":
                assert int(number) in {0, -signal.SIGKILL}
                assert (self._folder / f"{KILLED}writer-0").exists() == (number != "0")
                (self._folder / f"{KILLED}writer-0").unlink(missing_ok=True)
                return number != "0", promised
            promised.append((what, int(number)))
        raise AssertionError("the writer failed")


def check(run_dir: Path, promised: list[tuple[str, int]]) -> None:
    """Everything that was promised, in this and all earlier processes, is on disk, and nothing is torn."""
    newest = {what: max(number for one, number in promised if one == what) for what in {what for what, _ in promised}}
    lineages = [number for what, number in promised if what == "lineage"]
    assert lineages == sorted(set(lineages)), "a lineage was opened twice"
    if (run_dir / "config.yaml").exists():
        read_config(run_dir / "config.yaml")
    if "lineage" in newest:
        assert json.loads((run_dir / "lineage.json").read_text())["lineage"] >= newest["lineage"]
    path = newest_checkpoint(run_dir / "checkpoints")
    if "checkpoint" in newest:
        assert path is not None
        manifest, contents = verified_contents(path)
        assert manifest.learner_updates >= newest["checkpoint"]
        wholes = [files_of(manifest.learner_updates, lineage) for lineage in range(1, max(lineages) + 2)]
        assert {name: bytes(data) for name, data in contents.items()} in wholes
    if "point" in newest:
        curve = read_points(run_dir)
        assert curve[-1]["env_frames"] >= newest["point"]
        assert (run_dir / "metrics.jsonl").stat().st_size < 2 * MAX_CURVE_BYTES
    if "report" in newest:
        assert json.loads((run_dir / "report.json").read_text())["learner_updates"] >= newest["report"]


def test_a_kill_at_any_edge_of_a_file_loses_nothing_that_was_promised(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    promised: list[tuple[str, int]] = []
    with Writer(tmp_path) as writer:
        reached: set[str] = set()

        def kill_at(point: str, count: int) -> bool:
            is_reached, more = writer.write(point, count)
            promised.extend(more)
            check(run_dir, promised)
            return is_reached

        # Where it is first reached in a process, and later: a file is then replaced, or folders are there already.
        for count, point in itertools.product((1, 2), POINTS):
            # What a killed process left over is removed by the next one.
            if kill_at(point, count) or (count == 1 and kill_at("checkpoints/N: before rename", 1) and kill_at(point, 1)):
                reached.add(point)
        assert reached == set(POINTS)
        is_reached, more = writer.write("nothing", 1)
    assert not is_reached
    check(run_dir, promised + more)
    assert {one.name for one in (run_dir / "checkpoints").iterdir()} == {f"{more[-1][1] - back:012d}" for back in range(2)}
    assert not list(run_dir.rglob("*.tmp"))
    recorded = {line.split("\t")[1] for line in (tmp_path / RECORDED).read_text().splitlines()}
    assert recorded == set(POINTS), "the table of points is not what processes reach"
