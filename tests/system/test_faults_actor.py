"""An actor is killed or loses its connections: the learner is unaffected, no frame that was reported is lost, nothing grows."""

from __future__ import annotations

import signal
from pathlib import Path

from benchmarks.soak.faults import Fault
from herd.supervisor.readings import metrics_url
from herd.telemetry.metric_names import ACTOR_UNROLLS_RESENT, ACTOR_WEIGHTS_WAIT
from herd.telemetry.scrape import scrape, total
from tests.system.faulty_runs import ENVIRONMENTS, MEGABYTE, FaultyRun

LEARNER, PARAMSERVER = "actor-0>learner-0", "actor-0>paramserver-0"


def test_an_actor_is_struck_in_every_way(tmp_path: Path) -> None:
    # Three tasks, so that the report's accounts by task have to add up too; 64 environments play them 21 or 22 times.
    with FaultyRun(tmp_path, "--env.reward_scales", "1,2,3") as faulty:
        learner = faulty.reading("learner-0")

        # Killed: the learner goes on with the other one, and a replacement contributes soon.
        faulty.survive(Fault("kill", "actor-0"))
        assert faulty.reading("learner-0").pid == learner.pid

        # Stopped: what the other actor sends is learned from all the while.
        faulty.run.signal("actor-0", signal.SIGSTOP)
        before = faulty.reading("learner-0").work
        faulty.until(lambda: faulty.reading("learner-0").work > before + 50, "updates without actor-0", {"actor-0"})
        faulty.run.signal("actor-0", signal.SIGCONT)

        # Cut off from the learner: what was under way is sent again, and what waits is one message, not a backlog.
        size = faulty.resident("actor-0")
        faulty.survive(Fault("cut", LEARNER, 3.0))
        faulty.survive(Fault("stall", LEARNER, 3.0))
        faulty.survive(Fault("slow", LEARNER, 3.0, bytes_per_second=20_000.0))
        # Without weights it acts on what it has.
        faulty.survive(Fault("cut", PARAMSERVER, 3.0))
        faulty.survive(Fault("slow", PARAMSERVER, 3.0, bytes_per_second=20_000.0))
        # A frame of Catch is small: 3 s of unrolls that nobody takes would be 20 MB.
        assert faulty.resident("actor-0") < size + 10 * MEGABYTE

        report = faulty.finish()
        assert faulty.reading("learner-0").pid == learner.pid
    # No learner was lost, so no frame was: whatever broke in between was sent again, and taken once.
    assert report["accounting"]["dropped"] == {}
    assert "unattributed" not in report["accounting"]
    assert min(task["env_frames"] for task in report["tasks"].values()) > 0.5 * report["env_frames"] / 3
    assert faulty.lineage() == 1


def test_what_breaks_off_under_way_is_sent_again_and_taken_once(tmp_path: Path) -> None:
    # Credit comes before the unroll, so that there is always one that will be sent, come what may.
    words = ("--actor.credit", "before_unroll", "--learner.max_policy_lag", "50")
    with FaultyRun(tmp_path, *words) as faulty:
        # Messages are acknowledged as they come: an actor that had to ask would keep one nearly always.
        kept = [faulty.look().processes["actor-0"].unacknowledged for _ in range(24)]
        assert kept.count(0.0) >= 6, kept

        links = [f"{actor}>learner-0" for actor in faulty.actors]
        for _ in range(2):
            # A message takes 3 s at this rate: it is cut in two.
            faulty.survive(*(Fault("lose", link, 1.5, bytes_per_second=20_000.0) for link in links))
            # It is taken, the acknowledgement is lost.
            faulty.survive(*(Fault("deaf", link, 1.5) for link in links))
        assert sum(metric(faulty, actor, ACTOR_UNROLLS_RESENT.name) for actor in faulty.actors) > 0
        report = faulty.finish()
    # Late messages may be too old to learn from; none is lost, none is learned from twice (the ledger would not balance).
    assert set(report["accounting"]["dropped"]) <= {"stale"}


def metric(faulty: FaultyRun, process: str, name: str) -> float:
    """By the process's own word."""
    url = metrics_url(faulty.run.run_dir, process)
    assert url is not None
    return total(scrape(url, 10.0), name)


def weights_wait_seconds(faulty: FaultyRun) -> float:
    """For weights at the starts of unrolls, by actor-0's own clock."""
    return metric(faulty, "actor-0", ACTOR_WEIGHTS_WAIT.name)


def test_an_actor_without_weights_acts_on_what_it_has(tmp_path: Path) -> None:
    with FaultyRun(tmp_path, "--actor.count", "1", "--actor.weights_timeout_seconds", "3") as faulty:
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
        assert len(held) <= 3  # the one before, and what was under way with the cut
        # The first unroll waits in vain, the others do not wait again.
        assert weights_wait_seconds(faulty) - waited < 2 * 3.0
        proxy.forward()
        faulty.until(lambda: faulty.reading("actor-0").version > max(held), "fresh weights again")
        assert faulty.finish()["accounting"]["dropped"] == {}
