"""Faults of a service and its links in one run: training recovers, no reported frame is lost, and memory is bounded."""

from __future__ import annotations

import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

from benchmarks.soak.faults import Fault, KindName
from benchmarks.soak.run import long_stop_seconds
from herd.config.loading import load_settings
from herd.protocols.replay import metrics as replay_metrics
from herd.protocols.unrolls import metrics as unroll_metrics
from tests.system.faulty_runs import ENVIRONMENTS, MEGABYTE, FaultyRun
from tests.system.whole_runs import lineage_of

RECURRENT = ("--network.core", "lstm", "--network.core.size", "16")
CENTRAL = ("--actor.inference", "remote", "--actor.count", "2", *RECURRENT)


def fault(kind: KindName, target: str, seconds: float = 0.0) -> Fault:
    """A fault; ``slow`` and ``lose`` leave so little that a message takes seconds."""
    return Fault(kind, target, seconds, bytes_per_second=20_000.0 if kind in {"slow", "lose"} else 0.0)


def test_the_run_survives_every_fault_of_an_actor(tmp_path: Path) -> None:
    # Three tasks, so that the accounts by task must add up too; 64 environments play each 21 or 22 times.
    with FaultyRun(tmp_path, "--env.reward_scales", "1,2,3") as faulty:
        learner = faulty.reading("learner-0")

        # Killed: the learner continues with the other actor, and a replacement contributes soon.
        faulty.survive(fault("kill", "actor-0"))
        assert faulty.reading("learner-0").pid == learner.pid

        # Stopped: the learner continues to train on the other actor's unrolls.
        faulty.run.signal("actor-0", signal.SIGSTOP)
        before = faulty.reading("learner-0").work
        faulty.until(lambda: faulty.reading("learner-0").work > before + 50, "updates without actor-0", {"actor-0"})
        faulty.run.signal("actor-0", signal.SIGCONT)

        # Disconnected from the learner: messages in flight are sent again, and only one message waits, rather than a backlog.
        size = faulty.resident("actor-0")
        faulty.survive(fault("cut", "actor-0>learner-0", 3.0))
        faulty.survive(fault("stall", "actor-0>learner-0", 3.0))
        faulty.survive(fault("slow", "actor-0>learner-0", 3.0))
        # Without new weights it acts on those that it has.
        faulty.survive(fault("cut", "actor-0>paramserver-0", 3.0))
        faulty.survive(fault("slow", "actor-0>paramserver-0", 3.0))
        # A frame of Catch is small; 3 s of unrolls that are not taken would need 20 MB.
        assert faulty.resident("actor-0") < size + 10 * MEGABYTE

        report = faulty.finish()
        assert faulty.reading("learner-0").pid == learner.pid
    # No learner was lost, so no frame was: interrupted messages were sent again, and taken once.
    assert report["accounting"]["dropped"] == {}
    assert "unattributed" not in report["accounting"]
    assert min(task["env_frames"] for task in report["tasks"].values()) > 0.5 * report["env_frames"] / 3
    assert lineage_of(faulty.run.run_dir) == 1


def test_interrupted_messages_are_resent_and_accepted_once(tmp_path: Path) -> None:
    # Credit is granted before the unroll, so that there is always an unroll to send.
    words = ("--actor.credit", "before_unroll", "--learner.max_policy_lag", "50")
    with FaultyRun(tmp_path, *words) as faulty:
        # Messages are acknowledged as they arrive: an actor that had to ask would hold one almost always.
        kept = [faulty.look().processes["actor-0"].unacknowledged for _ in range(24)]
        assert kept.count(0.0) >= 6, kept

        links = [f"{actor}>learner-0" for actor in faulty.actors]
        for _ in range(2):
            # A message takes 3 s at this rate, so it is interrupted.
            faulty.survive(*(fault("lose", link, 1.5) for link in links))
            # The message arrives, but its acknowledgement is lost.
            faulty.survive(*(fault("deaf", link, 1.5) for link in links))
        assert sum(faulty.metric(actor, unroll_metrics.ACTOR_UNROLLS_RESENT.name) for actor in faulty.actors) > 0
        report = faulty.finish()
    # Late messages may be too old to learn from; none is lost, and none is learned from twice (the ledger would not balance).
    assert set(report["accounting"]["dropped"]) <= {"stale"}


def test_an_actor_without_new_weights_keeps_its_old_ones(tmp_path: Path) -> None:
    words = ("--actor.count", "1", "--deterministic", "false", "--actor.weights_timeout_seconds", "3")  # one that repeats would wait longer
    with FaultyRun(tmp_path, *words) as faulty:
        proxy = faulty.run.proxies["actor-0>paramserver-0"]
        waited = faulty.metric("actor-0", unroll_metrics.ACTOR_WEIGHTS_WAIT.name)
        proxy.cut()
        before = faulty.reading("actor-0")
        held: set[tuple[int, int]] = set()

        def acts_on() -> bool:
            actor, learner = faulty.reading("actor-0"), faulty.reading("learner-0")
            held.add(actor.version)
            return actor.work > before.work + 20 * ENVIRONMENTS and learner.version > before.version

        faulty.until(acts_on, "unrolls without fresh weights")
        assert len(held) <= 3  # the previous version, and those that were in flight at the cut
        # The first unroll waits until the time-out; later ones do not wait again.
        assert faulty.metric("actor-0", unroll_metrics.ACTOR_WEIGHTS_WAIT.name) - waited < 2 * 3.0
        proxy.forward()
        faulty.until(lambda: faulty.reading("actor-0").version > max(held), "fresh weights again")
        assert faulty.finish()["accounting"]["dropped"] == {}


def all_actors_have(faulty: FaultyRun, lineage: int) -> bool:
    return all(faulty.reading(actor).version[0] == lineage for actor in faulty.actors)


def test_the_run_survives_every_fault_of_the_learner(tmp_path: Path) -> None:
    with FaultyRun(tmp_path, "--learner.checkpoint_interval_seconds", "2") as faulty:
        size = max(map(faulty.resident, faulty.actors))
        kinds: tuple[KindName, ...] = ("kill", "move")
        for number, kind in enumerate(kinds, start=2):
            faulty.survive(fault(kind, "learner-0"))
            assert lineage_of(faulty.run.run_dir) == number
            faulty.until(partial(all_actors_have, faulty, number), "new weights")
        faulty.survive(fault("stop", "learner-0", 3.0))
        faulty.survive(*(fault("cut", f"{actor}>learner-0", 2.0) for actor in faulty.actors))
        faulty.survive(*(fault("stall", f"{actor}>learner-0", 2.0) for actor in faulty.actors))
        assert lineage_of(faulty.run.run_dir) == 3
        # Actors without a learner wait; they do not accumulate what they played.
        assert max(map(faulty.resident, faulty.actors)) < size + 10 * MEGABYTE
        report = faulty.finish()
    # Only frames trained on after a checkpoint or waiting in the queue are lost with the learner, and they are counted.
    assert set(report["accounting"]["dropped"]) == {"learner_restart"}


def test_all_processes_follow_a_learner_restored_from_an_old_state(tmp_path: Path) -> None:
    words = ("--learner.checkpoint_interval_seconds", "1", "--learner.keep_checkpoints", "100", "--paramserver.replicas", "1")
    with FaultyRun(tmp_path, *words) as faulty:
        checkpoints = faulty.run.run_dir / "checkpoints"
        oldest = min(checkpoints.glob("[0-9]" * 12))
        old = int(oldest.name)
        faulty.until(lambda: faulty.reading("learner-0").version[1] > old + 200, "updates beyond the first checkpoint")
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
    assert lineage_of(faulty.run.run_dir) == 2


def test_the_run_survives_every_fault_of_the_parameter_server(tmp_path: Path) -> None:
    with FaultyRun(tmp_path) as faulty:
        learner, port = faulty.reading("learner-0"), faulty.run.ports["paramserver-0"]
        size = faulty.resident("learner-0")

        faulty.survive(fault("kill", "paramserver-0"))
        faulty.survive(fault("move", "paramserver-0"))
        assert faulty.run.ports["paramserver-0"] != port
        faulty.survive(fault("stop", "paramserver-0", 2.0))
        faulty.survive(fault("cut", "learner-0>paramserver-0", 2.0))
        faulty.survive(fault("stall", "learner-0>paramserver-0", 2.0))
        faulty.survive(fault("slow", "learner-0>paramserver-0", 3.0))
        # Versions that are not taken are replaced rather than kept.
        assert faulty.resident("learner-0") < size + 40 * MEGABYTE

        report = faulty.finish()
        assert faulty.reading("learner-0").pid == learner.pid
    # Frames do not depend on weights: none was lost, and a single learner has a single lineage.
    assert report["accounting"]["dropped"] == {}
    assert lineage_of(faulty.run.run_dir) == 1


def test_the_run_survives_faults_of_replicas_and_their_parent(tmp_path: Path) -> None:
    with FaultyRun(tmp_path, "--paramserver.replicas", "2") as faulty:
        assert faulty.run.paramservers == ["paramserver-0", "paramserver-1", "paramserver-2"]
        parent = "paramserver-1>paramserver-0"
        faulty.survive(fault("kill", "paramserver-1"))
        faulty.survive(fault("move", "paramserver-2"))
        faulty.survive(fault("cut", parent, 2.0))
        faulty.survive(fault("stall", parent, 2.0))
        # The root and the learner are killed together: replicas wait for their parent, then follow the new lineage.
        faulty.survive(fault("kill", "paramserver-0"), fault("kill", "learner-0"))
        report = faulty.finish()
    assert set(report["accounting"]["dropped"]) <= {"learner_restart"}
    assert lineage_of(faulty.run.run_dir) == 2


REPLAY = (
    *("--replay.kind", "shared", "--replay.fraction", "0.5", "--replay.minimum_fill_agent_steps", "2000"),
    *("--replay.timeout_seconds", "0.5", "--replay_service.snapshot_interval_seconds", "1", *RECURRENT),
    *("--learner.queue_batches", "6", "--loss.trust_region", "implied"),
)


def _replays(faulty: FaultyRun, beyond: float = 0.0) -> float:
    """Wait until more unrolls than ``beyond`` were replayed; returns their number."""

    def num_replayed() -> float:
        return faulty.metric("learner-0", unroll_metrics.UNROLLS_REPLAYED.name)

    faulty.until(lambda: num_replayed() > beyond, f"more than {beyond} unrolls to be replayed")
    return num_replayed()


def test_the_run_survives_faults_of_the_replay_service(tmp_path: Path) -> None:
    with FaultyRun(tmp_path, *REPLAY) as faulty:
        learner = faulty.reading("learner-0")
        replayed = _replays(faulty)
        for each in (
            fault("kill", "replay-0"),
            fault("stop", "replay-0", 3.0),
            fault("cut", "learner-0>replay-0", 3.0),
            fault("lose", "learner-0>replay-0", 2.0),
            fault("move", "replay-0"),
        ):
            # The learner trains meanwhile: this is what the soak counts as recovery.
            faulty.survive(each)
            replayed = _replays(faulty, replayed + 200)
        assert faulty.metric("learner-0", replay_metrics.REPLAY_TIMEOUTS.name) >= 1
        assert faulty.reading("learner-0").pid == learner.pid
        # A learner that restarts begins new episodes.
        faulty.survive(fault("kill", "learner-0"))
        _replays(faulty, 200)  # the count restarts with the process
        report = faulty.finish()
    assert set(report["accounting"]["dropped"]) <= {"learner_restart"}
    assert 0.0 < report["replay"]["fraction"] <= 0.5


def test_actors_wait_through_faults_of_the_inference_service(tmp_path: Path) -> None:
    with FaultyRun(tmp_path, *CENTRAL) as faulty:
        actor = faulty.reading("actor-0")
        for each in (
            fault("kill", "inference-0"),
            fault("cut", "actor-0>inference-0", 2.0),
            fault("lose", "actor-0>inference-0", 2.0),
            fault("deaf", "actor-0>inference-0", 2.0),
            fault("move", "inference-0"),
            fault("kill", "actor-1"),
        ):
            faulty.survive(each)
        report = faulty.finish()
        assert faulty.reading("actor-0").pid == actor.pid
    assert report["accounting"]["dropped"] == {}


def outlasting(faulty: FaultyRun, *processes: str) -> list[Fault]:
    """Stops that last longer than heartbeats (30 s, not configurable), credit and leases (15 s in these runs)."""
    settings = load_settings([faulty.run.run_dir / "config.yaml"], [], {})
    seconds = long_stop_seconds(settings)
    assert seconds > max(30.0, settings.learner.credit_expires_seconds, settings.paramserver.index_lease_seconds)
    return [fault("stop_long", process, seconds) for process in processes]


@pytest.mark.soak
def test_processes_recover_from_stops_beyond_every_timeout(tmp_path: Path) -> None:
    with FaultyRun(tmp_path) as faulty:
        pids = {name: faulty.run.pid(name) for name in faulty.run.children}
        faulty.survive(*outlasting(faulty, "learner-0"))
        # Both actors are stopped; a test above stops one of them.
        faulty.survive(*outlasting(faulty, *faulty.actors, "paramserver-0"))
        assert {name: faulty.run.pid(name) for name in pids} == pids
        report = faulty.finish()
    # The processes were stopped, not lost: queues are intact, and messages written meanwhile are sent again.
    assert report["accounting"]["dropped"] == {}
    assert lineage_of(faulty.run.run_dir) == 1
