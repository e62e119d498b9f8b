"""When the parameter server is killed, moved or disconnected, actors continue, the learner publishes again, and versions never decrease."""

from __future__ import annotations

from pathlib import Path

from benchmarks.soak.faults import Fault
from tests.system.faulty_runs import MEGABYTE, FaultyRun

PUBLISHING = "learner-0>paramserver-0"


def test_the_run_survives_every_fault_of_the_parameter_server(tmp_path: Path) -> None:
    with FaultyRun(tmp_path) as faulty:
        learner, port = faulty.reading("learner-0"), faulty.run.ports["paramserver-0"]
        size = faulty.resident("learner-0")

        faulty.survive(Fault("kill", "paramserver-0"))
        faulty.survive(Fault("move", "paramserver-0"))
        assert faulty.run.ports["paramserver-0"] != port
        faulty.survive(Fault("stop", "paramserver-0", 2.0))
        faulty.survive(Fault("cut", PUBLISHING, 2.0))
        faulty.survive(Fault("stall", PUBLISHING, 2.0))
        faulty.survive(Fault("slow", PUBLISHING, 3.0, bytes_per_second=20_000.0))
        # Versions that are not taken are replaced rather than kept.
        assert faulty.resident("learner-0") < size + 40 * MEGABYTE

        report = faulty.finish()
        assert faulty.reading("learner-0").pid == learner.pid
    # Frames do not depend on weights: none was lost, and a single learner has a single lineage.
    assert report["accounting"]["dropped"] == {}
    assert faulty.lineage() == 1


def test_the_run_survives_faults_of_replicas_and_their_parent(tmp_path: Path) -> None:
    with FaultyRun(tmp_path, "--paramserver.replicas", "2") as faulty:
        assert faulty.run.paramservers == ["paramserver-0", "paramserver-1", "paramserver-2"]
        parent = "paramserver-1>paramserver-0"
        faulty.survive(Fault("kill", "paramserver-1"))
        faulty.survive(Fault("kill", "paramserver-0"))
        faulty.survive(Fault("move", "paramserver-2"))
        faulty.survive(Fault("cut", parent, 2.0))
        faulty.survive(Fault("stall", parent, 2.0))
        # The root and the learner are killed together: replicas wait for their parent, then follow the new lineage.
        faulty.survive(Fault("kill", "paramserver-0"), Fault("kill", "learner-0"))
        report = faulty.finish()
    assert set(report["accounting"]["dropped"]) <= {"learner_restart"}
    assert faulty.lineage() == 2
