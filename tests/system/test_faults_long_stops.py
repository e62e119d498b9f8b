"""A process is stopped for longer than every time-out: connections, credit, sessions and leases are given up and made again."""

from __future__ import annotations

from pathlib import Path

from benchmarks.soak.faults import Fault
from benchmarks.soak.run import long_stop_seconds
from herd.config.loading import load_settings
from tests.system.faulty_runs import FaultyRun


def outlasting(faulty: FaultyRun, *processes: str) -> list[Fault]:
    """Stops that last longer than heartbeats (30 s, not configurable), credit and leases (15 s in these runs)."""
    settings = load_settings([faulty.run.run_dir / "config.yaml"], [], {})
    seconds = long_stop_seconds(settings)
    assert seconds > max(30.0, settings.learner.credit_expires_seconds, settings.paramserver.index_lease_seconds)
    return [Fault("stop_long", process, seconds) for process in processes]


def test_processes_recover_from_stops_beyond_every_timeout(tmp_path: Path) -> None:
    with FaultyRun(tmp_path) as faulty:
        pids = {name: faulty.run.pid(name) for name in faulty.run.children}
        faulty.survive(*outlasting(faulty, "learner-0"))
        # Both actors are stopped; test_faults_actor.py stops one of them.
        faulty.survive(*outlasting(faulty, *faulty.actors, "paramserver-0"))
        assert {name: faulty.run.pid(name) for name in pids} == pids
        report = faulty.finish()
    # The processes were stopped, not lost: queues are intact, and messages written meanwhile are sent again.
    assert report["accounting"]["dropped"] == {}
    assert faulty.lineage() == 1
