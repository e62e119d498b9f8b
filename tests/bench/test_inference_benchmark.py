"""How the comparison of local and central inference evaluates its runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.inference import RoundTrips, row
from herd.protocols.inference import metrics as inference_metrics
from herd.telemetry import Telemetry


def test_ratios_are_computed_within_pairs_and_others_are_medians() -> None:
    pairs = [
        {
            "local": {"frames_per_second": local, "core_microseconds_per_agent_step": 400.0 + number},
            "remote": {"frames_per_second": remote, "core_microseconds_per_agent_step": 500.0 + number, "within_goal": share},
        }
        for number, (local, remote, share) in enumerate(((1000.0, 900.0, 0.99), (2000.0, 2200.0, 0.5), (4000.0, 3800.0, 0.97)))
    ]
    assert row("deep", pairs) == "| deep | 2,000 | 2,200 | 0.950 (0.900 to 1.100) | 401, 501 | 97.0% |"


def test_round_trips_of_all_actors_are_combined(tmp_path: Path) -> None:
    round_trips = RoundTrips()
    with_answers = {"actor-0": (0.002, 0.004, 0.02), "actor-1": (0.008,), "actor-2": ()}
    telemetries = []
    (tmp_path / "processes").mkdir()
    try:
        for name, seconds in with_answers.items():
            telemetry = Telemetry("actor", "run")
            telemetries.append(telemetry)
            for each in seconds:
                telemetry.histogram(inference_metrics.ACTOR_ROUND_TRIP).observe(each)
            port = telemetry.serve("127.0.0.1", 0)
            (tmp_path / "processes" / f"{name}.json").write_text(json.dumps({"metrics_port": port}))
        round_trips.look(tmp_path)
    finally:
        for telemetry in telemetries:
            telemetry.close()
    (tmp_path / "processes" / "actor-3.json").write_text("{")  # a file that is still being written
    round_trips.look(tmp_path)  # no process answers any more: the last values count
    assert round_trips.share_within_goal == pytest.approx(3 / 4)
    assert round_trips.mean_seconds == pytest.approx(0.034 / 4)
