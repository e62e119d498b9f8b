"""When the learner is killed or disconnected, actors wait, reconnect and send again; all processes follow a new lineage at once."""

from __future__ import annotations

import json
import shutil
import signal
from functools import partial
from pathlib import Path

from benchmarks.soak.faults import Fault, KindName
from tests.system.faulty_runs import MEGABYTE, FaultyRun


def all_actors_have(faulty: FaultyRun, lineage: int) -> bool:
    return all(faulty.reading(actor).version[0] == lineage for actor in faulty.actors)


def test_the_run_survives_every_fault_of_the_learner(tmp_path: Path) -> None:
    with FaultyRun(tmp_path, "--learner.checkpoint_interval_seconds", "2") as faulty:
        size = max(map(faulty.resident, faulty.actors))
        kinds: tuple[KindName, ...] = ("kill", "move", "kill")
        for number, kind in enumerate(kinds, start=2):
            faulty.survive(Fault(kind, "learner-0"))
            assert faulty.lineage() == number
            faulty.until(partial(all_actors_have, faulty, number), "new weights")
        faulty.survive(Fault("stop", "learner-0", 3.0))
        faulty.survive(*(Fault("cut", f"{actor}>learner-0", 2.0) for actor in faulty.actors))
        faulty.survive(*(Fault("stall", f"{actor}>learner-0", 2.0) for actor in faulty.actors))
        assert faulty.lineage() == 4
        # Actors without a learner wait; they do not accumulate what they played.
        assert max(map(faulty.resident, faulty.actors)) < size + 10 * MEGABYTE
        report = faulty.finish()
    # Only frames trained on after a checkpoint or waiting in the queue are lost with the learner, and they are counted.
    assert set(report["accounting"]["dropped"]) == {"learner_restart"}


def test_all_processes_follow_a_learner_restored_from_an_old_state(tmp_path: Path) -> None:
    words = ("--learner.checkpoint_interval_seconds", "1", "--learner.keep_checkpoints", "100", "--paramserver.replicas", "1")
    with FaultyRun(tmp_path, *words, "--actor.count", "3") as faulty:
        checkpoints = faulty.run.run_dir / "checkpoints"
        oldest = min(checkpoints.glob("[0-9]" * 12))
        old = int(oldest.name)
        faulty.until(lambda: faulty.reading("learner-0").version[1] > old + 1000, "updates beyond the first checkpoint")
        # A stopped learner writes no further checkpoint; then all checkpoints but the oldest are deleted.
        faulty.run.signal("learner-0", signal.SIGSTOP)
        before = {name: reading.pid for name, reading in faulty.monitor.last.items() if name != "learner-0"}
        newest = faulty.monitor.newest[0]
        for path in checkpoints.iterdir():
            if path != oldest:
                shutil.rmtree(path)
        pid = faulty.run.signal("learner-0", signal.SIGKILL)
        faulty.monitor.expect_exit("learner-0")

        followed: dict[str, tuple[int, int]] = {}

        def everybody_followed() -> bool:
            for name, reading in faulty.look().processes.items():
                if reading.version[0] == 2:
                    followed.setdefault(name, reading.version)
            return set(followed) == set(before) | {"learner-0"}

        faulty.until(everybody_followed, "everybody in lineage 2")
        assert faulty.run.pid("learner-0") != pid
        # These versions have lower numbers than before, but count as newer; they were taken while the numbers were low.
        assert all(old <= updates < newest[1] for _, updates in followed.values()), (followed, newest)
        assert {name: faulty.reading(name).pid for name in before} == before  # no other process restarted
        report = faulty.finish()
    # Frames that only the newer checkpoints knew are lost, and counted as lost.
    assert set(report["accounting"]["dropped"]) == {"learner_restart"}
    assert json.loads((faulty.run.run_dir / "lineage.json").read_text()) == {"lineage": 2}
