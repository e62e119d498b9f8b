"""A small run of the replay benchmark, with a real service."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import patient

ROOT = Path(__file__).parents[2]


@pytest.mark.soak
@pytest.mark.processes
def test_the_replay_benchmark_reports_all_figures(tmp_path: Path) -> None:
    words = [
        "--experiment",
        "catch",
        "--environments",
        "4",
        "--unrolls",
        "8",
        "--seconds",
        "0.5",
        "--output",
        str(tmp_path / "report.json"),
    ]
    command = [sys.executable, str(ROOT / "benchmarks" / "replay.py"), *words]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=patient(300))
    report = json.loads((tmp_path / "report.json").read_text())
    assert all(value > 0 for value in report["figures"].values())
    inserted, memory = report["insert"]["unrolls"], report["memory"]
    assert inserted % (4 * 8) == 0
    # A game has ten rows, nine of which are steps; the end of the last game of each environment may be missing.
    assert inserted * 20 * 0.8 < memory["agent_steps"] <= inserted * 20 * 0.9 + inserted
    assert 9 * report["episodes"]["samples"] == report["episodes"]["agent_steps"]
    assert report["unrolls"]["unrolls"] == 28 * report["unrolls"]["samples"]
