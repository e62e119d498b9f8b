"""When the replay service is killed, stopped, moved or cut off, the learner waits once, uses online unrolls, then replays again."""

from __future__ import annotations

from pathlib import Path

from benchmarks.soak.faults import Fault
from herd.launch.readings import metrics_url
from herd.protocols.replay import metrics as replay_metrics
from herd.protocols.unrolls import metrics as unroll_metrics
from herd.telemetry.scrape import Samples, ScrapeError, scrape, total
from tests.system.faulty_runs import FaultyRun

REPLAYING = "learner-0>replay-0"
WORDS = (
    *(
        "--replay.kind",
        "shared",
        "--replay.fraction",
        "0.5",
        "--replay.minimum_fill_agent_steps",
        "2000",
        "--replay.timeout_seconds",
        "0.5",
    ),
    *("--network.core", "lstm", "--network.core.size", "16"),
    *("--replay_service.snapshot_interval_seconds", "1", "--learner.queue_batches", "6", "--loss.trust_region", "implied"),
)


def _learner(faulty: FaultyRun) -> Samples | None:
    pid = faulty.run.pid("learner-0")
    url = None if pid is None else metrics_url(faulty.run.run_dir, "learner-0", pid)
    try:
        return None if url is None else scrape(url)
    except ScrapeError:
        return None


def _replays(faulty: FaultyRun, beyond: float = 0.0) -> float:
    """Wait until more unrolls than ``beyond`` were replayed; returns their number."""

    def num_replayed() -> float:
        samples = _learner(faulty)
        return 0.0 if samples is None else total(samples, unroll_metrics.UNROLLS_REPLAYED.name)

    faulty.until(lambda: num_replayed() > beyond, f"no more than {beyond} unrolls were replayed")
    return num_replayed()


def test_the_run_survives_every_fault_of_the_replay_service(tmp_path: Path) -> None:
    with FaultyRun(tmp_path, *WORDS) as faulty:
        learner = faulty.reading("learner-0")
        replayed = _replays(faulty)
        for fault in (
            Fault("kill", "replay-0"),
            Fault("stop", "replay-0", 3.0),
            Fault("cut", REPLAYING, 3.0),
            Fault("stall", REPLAYING, 3.0),
            Fault("lose", REPLAYING, 2.0, bytes_per_second=20_000.0),
            Fault("move", "replay-0"),
        ):
            # The learner trains meanwhile: this is what the soak counts as recovery.
            faulty.survive(fault)
            replayed = _replays(faulty, replayed + 200)
        samples = _learner(faulty)
        assert samples is not None
        assert total(samples, replay_metrics.REPLAY_TIMEOUTS.name) >= 1
        assert faulty.reading("learner-0").pid == learner.pid
        # A learner that restarts begins new episodes.
        faulty.survive(Fault("kill", "learner-0"))
        _replays(faulty, 200)  # the count restarts with the process
        report = faulty.finish()
    assert set(report["accounting"]["dropped"]) <= {"learner_restart"}
    assert 0.0 < report["replay"]["fraction"] <= 0.5
    assert report["replay"]["waited_share"] < 0.5
