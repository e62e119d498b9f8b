"""The inference service is killed, stopped, moved or disconnected: no frame is lost, and actors wait or act by themselves."""

from __future__ import annotations

from pathlib import Path

from benchmarks.soak.faults import Fault
from herd.launch.readings import metrics_url
from herd.protocols.inference import metrics as inference_metrics
from herd.telemetry.scrape import ScrapeError, scrape, total
from tests.system.faulty_runs import FaultyRun

ASKING = "actor-0>inference-0"
CENTRAL = ("--actor.inference", "remote", "--actor.count", "2")
RECURRENT = ("--network.core", "lstm", "--network.core.size", "16")


def _count(faulty: FaultyRun, process: str, metric: str) -> float:
    pid = faulty.run.pid(process)
    url = None if pid is None else metrics_url(faulty.run.run_dir, process, pid)
    try:
        return 0.0 if url is None else total(scrape(url), metric)
    except ScrapeError:
        return 0.0


def test_actors_wait_through_every_fault_of_the_inference_service(tmp_path: Path) -> None:
    with FaultyRun(tmp_path, *CENTRAL, *RECURRENT) as faulty:
        actor = faulty.reading("actor-0")
        for fault in (
            Fault("kill", "inference-0"),
            Fault("stop", "inference-0", 2.0),
            Fault("cut", ASKING, 2.0),
            Fault("stall", ASKING, 3.0),
            Fault("lose", ASKING, 2.0, bytes_per_second=20_000.0),
            Fault("deaf", ASKING, 2.0),
            Fault("move", "inference-0"),
            Fault("kill", "actor-1"),
        ):
            faulty.survive(fault)
        report = faulty.finish()
        assert faulty.reading("actor-0").pid == actor.pid
    assert report["accounting"]["dropped"] == {}


def test_actors_act_locally_while_the_inference_service_is_stopped(tmp_path: Path) -> None:
    words = ("--actor.inference_fallback", "local", "--actor.inference_timeout_seconds", "0.3")
    substituted = inference_metrics.ACTOR_SUBSTITUTED.name
    with FaultyRun(tmp_path, *CENTRAL, *RECURRENT, *words) as faulty:
        faulty.survive(Fault("stop", "inference-0", 4.0))
        faulty.until(lambda: _count(faulty, "actor-0", substituted) > 0, "no row was acted on by the actor itself")
        acted = _count(faulty, "inference-0", inference_metrics.INFERENCE_STEPS.name)
        faulty.until(
            lambda: _count(faulty, "inference-0", inference_metrics.INFERENCE_STEPS.name) > acted + 5_000, "the service does not act again"
        )
        report = faulty.finish()
    assert report["accounting"]["dropped"] == {}
