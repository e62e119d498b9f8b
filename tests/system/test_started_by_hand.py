"""Processes without a supervisor: which files they leave, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

from herd.cli.main import main
from herd.config.loading import load_settings
from herd.run.tensors import load_checkpoint
from tests.system.three_services import Services
from tests.system.whole_runs import pid_of, read_report, until


def test_without_a_supervisor_actors_lease_indices_and_end_and_settings_are_saved(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with Services(run_dir) as services:
        actors = [services.start("actor", name=f"actor{number}") for number in range(2)]
        services.start("paramserver")  # after the actors, which wait for it
        until(lambda: {pid_of(run_dir, f"actor-{index}") for index in range(2)} == {actor.pid for actor in actors}, "two leases")
        # So many frames that each actor, which may wait some seconds before it tries to connect again, plays a part of them.
        services.start("learner", "--stop.env_frames", "150000")
        assert services.processes["learner"].wait() == 0, services.output()
        for actor in actors:
            assert actor.wait() == 0, services.output()
            assert "the run is over" in actor.output
        state = load_checkpoint(run_dir / "checkpoints" / f"{read_report(run_dir)['learner_updates']:012d}").state
        assert sorted(account[0] for account in state["ledger"]["accounts"]) == [0, 1]  # both have sent unrolls
        settings = load_settings([run_dir / "config.yaml"], [], {})
        assert (settings.env.suite, settings.stop.env_frames, settings.run_dir) == ("catch", 150_000, run_dir)

        services.start("learner", "--stop.env_frames", "149999", "--resume", "true")
        assert services.processes["learner"].wait() == 0, services.output()
        assert "stop.env_frames 150000 -> 149999" in services.processes["learner"].output
    starts = [json.loads(line) for line in (run_dir / "starts.jsonl").read_text().splitlines()]
    assert [start["changed"] for start in starts] == [{}, {"stop.env_frames": [150000, 149999]}]
    assert main(["plot", str(run_dir)]) == 0
