"""A whole run with an evaluator, which follows the run; the last checkpoint is evaluated before the command ends."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from tests.system.whole_runs import herd, train


def test_a_run_is_evaluated_during_training_and_at_the_end(tmp_path: Path) -> None:
    run_dir = tmp_path / "catch"
    # The evaluator may start late on a busy machine: the last version is evaluated in any case.
    words = ("--evaluation.interval_seconds", "0.5", "--evaluation.episodes", "10", "--evaluation.final", "true")
    report = train(run_dir, "--stop.env_frames", "60000", *words)
    points = [json.loads(line) for line in (run_dir / "evaluation.jsonl").read_text().splitlines()]
    updates = [point["learner_updates"] for point in points]
    assert updates == sorted(set(updates))  # no version is evaluated twice
    last = points[-1]
    assert (last["learner_updates"], last["env_frames"], last["lineage"]) == (report["learner_updates"], report["env_frames"], 1)
    assert last["tasks"]["catch"]["episodes"] == 10
    assert "Traceback" not in (run_dir / "logs" / "evaluator-final.log").read_text()
    assert "Traceback" not in (run_dir / "logs" / "evaluator-0.log").read_text()
    data = tmp_path / "curve.csv"
    assert herd("plot", run_dir, "--data", data).returncode == 0
    with data.open() as lines:
        drawn = [row for row in csv.DictReader(lines) if row["curve"].endswith(": evaluation")]
    assert float(drawn[-1]["env_frames"]) == report["env_frames"]
    assert len(drawn) == len(points)
