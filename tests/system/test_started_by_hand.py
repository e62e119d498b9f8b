"""Processes without a supervisor: which files they leave, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

from herd.cli.main import main
from herd.config.loading import load_settings
from tests.system.three_services import Services


def test_without_a_supervisor_actors_end_and_settings_are_saved(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with Services(run_dir) as services:
        services.start("paramserver")
        services.start("learner", "--stop.env_frames", "3000")
        services.start("actor")  # it leases its index
        assert services.processes["learner"].wait() == 0, services.output()
        assert services.processes["actor"].wait() == 0, services.output()
        assert "the run is over" in services.processes["actor"].output
        settings = load_settings([run_dir / "config.yaml"], [], {})
        assert (settings.env.suite, settings.stop.env_frames, settings.run_dir) == ("catch", 3000, run_dir)

        services.start("learner", "--stop.env_frames", "2999", "--resume", "true")
        assert services.processes["learner"].wait() == 0, services.output()
        assert "stop.env_frames 3000 -> 2999" in services.processes["learner"].output
    starts = [json.loads(line) for line in (run_dir / "starts.jsonl").read_text().splitlines()]
    assert [start["changed"] for start in starts] == [{}, {"stop.env_frames": [3000, 2999]}]
    assert main(["plot", str(run_dir)]) == 0
