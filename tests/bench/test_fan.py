"""Small runs of the fan-in and fan-out measurements with real processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import growth
from benchmarks.fan import Child
from benchmarks.fan_in import finished
from benchmarks.fan_out import is_whole, marked
from herd.protocols.weights.client import WeightsFrame
from tests.patience import patient

ROOT = Path(__file__).parents[2]


def measured(name: str, *words: object) -> dict[str, Any]:
    command = [sys.executable, "-m", f"benchmarks.{name}", "catch", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=patient(110))
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.soak
@pytest.mark.processes
def test_fifty_actors_lose_no_unroll_over_broken_connections() -> None:
    words = ("--actors", 50, "--seconds", 1, "--unrolls-per-message", 2, "--unrolls-per-second", 2000, "--breaks", 5)
    report = measured("fan_in", *words)
    loss = report["loss"]
    assert loss["is_exact"], loss
    assert loss["unrolls_sent"] == loss["unrolls_consumed"] > 50
    assert loss["connections_broken"] >= 1
    assert loss["frames"]["consumed"] == loss["unrolls_sent"] * 20
    assert 0 < report["receiver"]["queue_bytes"] <= report["receiver"]["queue_bound_bytes"]
    assert report["receiver"]["thread_cpu_microseconds_per_unroll"]["io_thread"] > 0


@pytest.mark.processes
def test_a_line_of_the_log_is_no_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    says = 'print("2026-11-27 no connection for 10 s"); print(\'{"ready": 5}\')'
    popen = subprocess.Popen
    monkeypatch.setattr("benchmarks.fan.subprocess.Popen", lambda _, **rest: popen([sys.executable, "-c", says], **rest))
    child = Child("benchmarks.fan_in")
    with child._process:
        assert child.hear() == {"ready": 5}
        assert capsys.readouterr().err == "2026-11-27 no connection for 10 s\n"
        with pytest.raises(RuntimeError, match="ended with exit code 0"):
            child.hear()


def test_credit_that_finished_actors_hold_goes_to_those_that_must_send_again() -> None:
    class Crowd:
        """Done once its actors have the credit that ``holder`` returns when it is asked."""

        def __init__(self, holder: Crowd | None) -> None:
            self.holder, self.was_asked = holder, False

        def ask(self, do: str) -> dict[str, Any]:
            self.was_asked = True
            return {"is_done": self.holder is None or self.holder.was_asked, "asked": do}

    holder = Crowd(None)
    results = finished(cast("list[Child]", [Crowd(holder), holder]), time.monotonic() + patient(5))
    assert results == [{"is_done": True, "asked": "result"}] * 2


@pytest.mark.soak
@pytest.mark.processes
def test_fifty_clients_get_every_version_complete_from_replicas() -> None:
    words = ("--actors", 50, "--versions", 2, "--interval-seconds", 0.5, "--ask-seconds", 0.2, "--seconds", 1, "--concurrent", 10)
    report = measured("fan_out", *words)
    assert [version["clients"] for version in report["versions"]] == [50, 50]
    assert all(0 < version["median_seconds"] <= version["worst_seconds"] for version in report["versions"])
    assert report["clients"] == {"went_back": 0, "in_part": 0, "malformed": 0}
    # The replicas serve the clients, and the root serves the replicas.
    root, *replicas = report["servers"]
    assert len(replicas) == 2
    assert sum(server["weights"] for server in replicas) >= 50 * 2
    assert root["weights"] <= 3 * 2
    assert report["cpu_microseconds_per_not_modified"] > 0


def test_mixed_slices_of_two_versions_are_detected() -> None:
    filling = bytes(100)
    ours, other = (marked((1, updates), 0, filling) for updates in (7, 8))
    digests = ("", "")

    def frame(*slices: bytes) -> WeightsFrame:
        return WeightsFrame(1, 7, tuple(map(memoryview, slices)), digests)

    assert len(ours) == len(filling)
    assert is_whole(frame(ours, marked((1, 7), 1, filling)))
    assert not is_whole(frame(ours, ours))
    assert not is_whole(frame(ours[:50] + other[50:]))


def test_costs_by_number_of_actors_are_computed_from_kept_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ROOT / "benchmarks/results/growth"
    for file in kept.glob("*.json"):
        (tmp_path / file.name).write_text(file.read_text())
    monkeypatch.setattr(sys, "argv", ["growth", "--output", str(tmp_path)])
    growth.main()
    text = (tmp_path / "growth.md").read_text()
    assert text == (kept / "growth.md").read_text()
    found = json.loads((kept / "fan-in-1000-actors-16-unrolls.json").read_text())
    threads = found["receiver"]["thread_cpu_microseconds_per_unroll"]
    # A million frames are 12,500 unrolls of 20 steps of 4 frames.
    receiving = (threads["io_thread"] + threads["zeromq"]) * 12_500
    row = next(line for line in text.splitlines() if line.startswith("| 1,000 | 16 |"))
    assert row.endswith(f"| {receiving / 1e6:.2f} | {1e12 / receiving:,.0f} |")
    assert f"| {found['receiver']['cpu_microseconds_per_unroll'] * 0.0125:.2f} |" in row
