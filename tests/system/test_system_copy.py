"""A run continues from its copy in object storage after its disk is lost, and is evaluated from there."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.system.whole_runs import herd, lineage_of, read_points, read_report, train


def test_a_run_outlives_its_disk(tmp_path: Path) -> None:
    address, run_dir = f"file://{tmp_path}/storage/mine", tmp_path / "runs" / "mine"
    before = train(run_dir, "--copy_to", address, "--stop.env_frames", "20000")
    points, lineage = read_points(run_dir), lineage_of(run_dir)
    shutil.rmtree(run_dir.parent)
    done = herd("train", address, "--stop.env_frames", "40000", "--learner.threads", "1", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    after = read_report(run_dir)
    assert after["env_frames"] >= 40_000 > before["env_frames"]
    assert read_points(run_dir)[: len(points)] == points
    assert lineage_of(run_dir) > lineage + 1_000_000_000  # of the clock: the lost disk may have published under more than the copy says
    shutil.rmtree(run_dir.parent)
    done = herd("evaluate", address, "--episodes", "4", "--output", tmp_path / "scores", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"catch after {after['learner_updates']} updates" in done.stdout
    assert (tmp_path / "scores.json").is_file()
    done = herd("train", "catch", "--copy_to", address, folder=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "holds a run already: add --resume" in done.stderr
