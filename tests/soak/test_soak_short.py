"""The soak as a command: random faults on a run of all services, and the report when it is stopped or a promise is broken."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.soak.promises import RECOVERY
from tests.patience import patient
from tests.system.whole_runs import CATCH, ROOT, Process, environment, until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(800)]


EVERYTHING = str(ROOT / "benchmarks" / "soak" / "everything.yaml")


def words(folder: Path, *more: str, file: str = CATCH, seed: int = 24) -> list[str]:
    return [file, "--output", str(folder), "--seed", str(seed), "--learner.threads", "1", *more]


def read(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "soak.json").read_text())
    return report


@pytest.mark.soak
def test_a_run_survives_random_faults_at_every_service(tmp_path: Path) -> None:
    folder = tmp_path / "soak"
    # Seed 72 kills or moves replay, population and inference, stops an actor, and cuts, stalls and slows links of both learners, two at
    # once; it has no stop of 36 s.
    arguments = words(folder, "--minutes", "0.3", "--faults", "7", "--all-faults", "--recovery-limit", "120", file=EVERYTHING, seed=72)
    command = [sys.executable, "-m", "benchmarks.soak", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=patient(780), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = read(folder)
    assert report["promises_broken"] == []
    assert report["exit_code"] == 0
    assert report["num_faults"] == 7
    assert {"replay-0", "population-0", "inference-0"} <= set(report["by_target"])
    assert sum(row["faults"] for row in report["by_kind"].values()) == report["num_faults"]
    assert all(event["recovery_seconds"] > 0 for event in report["events"])
    ledger = report["ledger"]
    assert ledger["generated"] == ledger["consumed"] + ledger["in_flight"] + sum(ledger["dropped"].values())
    assert ledger["balanced_snapshots"] >= 4  # checkpoints and reports of both agents
    pairs = {f"{name}-{number}" for name in ("paramserver", "learner", "actor") for number in range(2)}
    assert set(report["memory"]) == {"supervisor", "bandit-0", "replay-0", "population-0", "inference-0", *pairs}
    assert all(row["most_bytes"] > 0 for row in report["memory"].values())
    assert report["curve"][-1]["env_frames"] > report["curve"][0]["env_frames"]
    assert (folder / "soak.png").stat().st_size > 0
    table = (folder / "soak.md").read_text()
    assert "every promise kept" in table
    assert "learner-1" in table


@pytest.mark.soak
def test_an_interrupted_soak_reports_broken_promises(tmp_path: Path) -> None:
    folder = tmp_path / "soak"
    # Nothing recovers within a millisecond, so every fault breaks that promise.
    arguments = words(folder, "--minutes", "60", "--faults", "3000", "--recovery-limit", "0.001")
    with Process(tmp_path / "soak.out", "benchmarks.soak", *arguments) as soak:

        def has_broken() -> bool:
            assert soak.is_running(), soak.output
            return "NOT RECOVERED" in soak.output

        until(has_broken, "a fault that was not recovered from in time")
        assert soak.stop(signal.SIGINT) == 1, soak.output
        assert f"soak: broken: {RECOVERY}" in soak.output
    report = read(folder)
    assert report["interrupted"]
    assert report["exit_code"] == 0  # the run itself ended cleanly
    assert report["promises_broken"] == [RECOVERY]
    assert report["breaches"][0]["promise"] == RECOVERY
    assert report["events"][0]["missing"]
    assert (folder / "soak.png").stat().st_size > 0


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    command = [sys.executable, "-m", "benchmarks.soak", *words(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=patient(120), check=False)
    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
