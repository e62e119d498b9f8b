"""When an actor is killed or loses its connections, the learner is unaffected, no reported frame is lost, and memory does not grow."""

from __future__ import annotations

import signal
from pathlib import Path

from benchmarks.soak.faults import Fault
from herd.launch.readings import metrics_url
from herd.protocols.unrolls.metrics import ACTOR_UNROLLS_RESENT, ACTOR_WEIGHTS_WAIT
from herd.telemetry.scrape import scrape, total
from tests.system.faulty_runs import ENVIRONMENTS, MEGABYTE, FaultyRun

LEARNER, PARAMSERVER = "actor-0>learner-0", "actor-0>paramserver-0"


def test_the_run_survives_every_fault_of_an_actor(tmp_path: Path) -> None:
    # Three tasks, so that the accounts by task must add up too; 64 environments play each 21 or 22 times.
    with FaultyRun(tmp_path, "--env.reward_scales", "1,2,3") as faulty:
        learner = faulty.reading("learner-0")

        # Killed: the learner continues with the other actor, and a replacement contributes soon.
        faulty.survive(Fault("kill", "actor-0"))
        assert faulty.reading("learner-0").pid == learner.pid

        # Stopped: the learner continues to train on the other actor's unrolls.
        faulty.run.signal("actor-0", signal.SIGSTOP)
        before = faulty.reading("learner-0").work
        faulty.until(lambda: faulty.reading("learner-0").work > before + 50, "updates without actor-0", {"actor-0"})
        faulty.run.signal("actor-0", signal.SIGCONT)

        # Disconnected from the learner: messages in flight are sent again, and only one message waits, rather than a backlog.
        size = faulty.resident("actor-0")
        faulty.survive(Fault("cut", LEARNER, 3.0))
        faulty.survive(Fault("stall", LEARNER, 3.0))
        faulty.survive(Fault("slow", LEARNER, 3.0, bytes_per_second=20_000.0))
        # Without new weights it acts on those that it has.
        faulty.survive(Fault("cut", PARAMSERVER, 3.0))
        faulty.survive(Fault("slow", PARAMSERVER, 3.0, bytes_per_second=20_000.0))
        # A frame of Catch is small; 3 s of unrolls that are not taken would need 20 MB.
        assert faulty.resident("actor-0") < size + 10 * MEGABYTE

        report = faulty.finish()
        assert faulty.reading("learner-0").pid == learner.pid
    # No learner was lost, so no frame was: interrupted messages were sent again, and taken once.
    assert report["accounting"]["dropped"] == {}
    assert "unattributed" not in report["accounting"]
    assert min(task["env_frames"] for task in report["tasks"].values()) > 0.5 * report["env_frames"] / 3
    assert faulty.lineage() == 1


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
            faulty.survive(*(Fault("lose", link, 1.5, bytes_per_second=20_000.0) for link in links))
            # The message arrives, but its acknowledgement is lost.
            faulty.survive(*(Fault("deaf", link, 1.5) for link in links))
        assert sum(metric(faulty, actor, ACTOR_UNROLLS_RESENT.name) for actor in faulty.actors) > 0
        report = faulty.finish()
    # Late messages may be too old to learn from; none is lost, and none is learned from twice (the ledger would not balance).
    assert set(report["accounting"]["dropped"]) <= {"stale"}


def metric(faulty: FaultyRun, process: str, name: str) -> float:
    """The value that the process itself reports."""
    url = metrics_url(faulty.run.run_dir, process)
    assert url is not None
    return total(scrape(url, 10.0), name)


def weights_wait_seconds(faulty: FaultyRun) -> float:
    """Seconds that actor-0 has waited for weights at the start of unrolls."""
    return metric(faulty, "actor-0", ACTOR_WEIGHTS_WAIT.name)


def test_an_actor_without_new_weights_keeps_its_old_ones(tmp_path: Path) -> None:
    words = ("--actor.count", "1", "--deterministic", "false", "--actor.weights_timeout_seconds", "3")  # one that repeats would wait longer
    with FaultyRun(tmp_path, *words) as faulty:
        proxy = faulty.run.proxies[PARAMSERVER]
        waited = weights_wait_seconds(faulty)
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
        assert weights_wait_seconds(faulty) - waited < 2 * 3.0
        proxy.forward()
        faulty.until(lambda: faulty.reading("actor-0").version > max(held), "fresh weights again")
        assert faulty.finish()["accounting"]["dropped"] == {}
