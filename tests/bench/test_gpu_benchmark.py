"""``make gpu`` without a GPU: every part runs at a small size, keeps what it has, and writes its table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu.__main__ import main, not_whole
from benchmarks.gpu.records import Numbers, run_cases


def test_results_are_kept_and_failed_cases_are_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "part.json"
    ran = []

    def works() -> Numbers:
        ran.append("works")
        return {"rate": 1.0}

    def fails() -> Numbers:
        ran.append("fails")
        raise ValueError("no such kernel")

    run_cases(file, {"one": works, "other": fails})
    assert not_whole(file)
    assert json.loads(file.read_text())["cases"]["other"]["error"] == "ValueError: no such kernel"
    run_cases(file, {"one": works, "other": works})
    assert ran == ["works", "fails", "works"]
    assert not not_whole(file)


def test_networks_and_updates_are_measured_on_the_cpu(tmp_path: Path) -> None:
    assert main(["--small", "--here", "--parts", "networks", "updates", "--output", str(tmp_path)]) == 0
    networks, updates = (json.loads((tmp_path / f"{part}.json").read_text())["cases"] for part in ("networks", "updates"))
    assert not any("error" in case for case in (networks | updates).values()), networks | updates
    # Forward, and backward without the gradient of the pixels: 0.107 giga-operations forward, as computed by hand from the layers' sizes.
    assert networks["deep, 2 rows, bfloat16"]["giga_operations_per_row"] == pytest.approx(0.317, rel=0.01)
    for case in updates.values():
        assert 0 < case["milliseconds"]["lowest"] <= case["milliseconds"]["median"] <= case["milliseconds"]["highest"]
    report = (tmp_path / "README.md").read_text()
    assert "| atari-shallow, 1 |" in report
    assert "no GPU" in report


@pytest.mark.soak
@pytest.mark.processes
def test_a_fed_learner_and_whole_runs_are_measured_on_the_cpu(tmp_path: Path) -> None:
    assert main(["--small", "--parts", "learner", "runs", "--output", str(tmp_path)]) == 0, (tmp_path / "README.md").read_text()
    learner, runs = (json.loads((tmp_path / f"{part}.json").read_text())["cases"] for part in ("learner", "runs"))
    assert learner["catch"]["frames_per_second"]["median"] > 0
    local, central = runs["catch, 1 actor"], runs["catch, 1 actor, central"]
    assert local["frames_per_second"]["mean"] > 0
    assert local["core_microseconds_per_frame"]["actor"] > 0
    assert local["gpu_busy"] is None
    assert "inference" not in local
    assert central["inference"]["batches_per_second"] > 0
    assert 0 <= central["inference"]["busy"] <= 1.1
