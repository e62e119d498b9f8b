"""A process is stopped for longer than every time-out: connections, credit, sessions and leases are given up, and made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak.faults import Fault
from benchmarks.soak.run import long_stop_seconds
from herd.config.loading import load_settings
from tests.system.faulty_runs import FaultyRun

pytestmark = pytest.mark.timeout(400)


def outlasting(faulty: FaultyRun, *processes: str) -> list[Fault]:
    """Stops longer than heartbeats (30 s, no setting), credit and leases (15 s in these runs)."""
    settings = load_settings([faulty.run.run_dir / "config.yaml"], [], {})
    seconds = long_stop_seconds(settings)
    assert seconds > max(30.0, settings.learner.credit_expires_seconds, settings.paramserver.index_lease_seconds)
    return [Fault("stop_long", process, seconds) for process in processes]


def test_the_learner_comes_back_after_every_time_out(tmp_path: Path) -> None:
    with FaultyRun(tmp_path) as faulty:
        pid = faulty.run.pid("learner-0")
        faulty.survive(*outlasting(faulty, "learner-0"))
        assert faulty.run.pid("learner-0") == pid
        report = faulty.finish()
    # It was away, not lost: its queue is whole, what was written to it meanwhile is sent again.
    assert report["accounting"]["dropped"] == {}
    assert faulty.lineage() == 1


def test_an_actor_and_the_parameter_server_come_back_after_every_time_out(tmp_path: Path) -> None:
    with FaultyRun(tmp_path) as faulty:
        before = faulty.reading("learner-0")
        stops = outlasting(faulty, "actor-0", "paramserver-0")
        faulty.survive(*stops)
        # Meanwhile the other actor went on with the weights it had, and the learner with what it sent.
        assert faulty.reading("learner-0").pid == before.pid
        began = faulty.last_event.at
        assert faulty.env_frames_at(began + stops[0].seconds) > faulty.env_frames_at(began + 2.0) + 10_000
        report = faulty.finish()
    assert report["accounting"]["dropped"] == {}
    assert faulty.lineage() == 1
