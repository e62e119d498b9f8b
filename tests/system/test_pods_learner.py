"""Learners as in pods: started independently, restarted whenever they end, each with its own disk."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from herd.telemetry.scrape import page
from herd.telemetry.telemetry import COPY_IS_INCOMPLETE, RUN_IS_OVER
from tests.system.three_services import Services, address, left_in_order
from tests.system.whole_runs import CATCH, Process, free_ports, read_points, read_report, until

STAYS = ("--resume", "true", "--stop.wait_for_signal", "true")


def test_a_finished_learner_stays_until_it_is_signalled(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with Services(run_dir) as services:
        url = f"http://127.0.0.1:{services.ports[2]}"
        for service in ("paramserver", "actor"):
            services.start(service, *(["--index", "0"] if service == "actor" else []))
        for address_of_copy in (f"file://{tmp_path}/storage", "file:///proc/nowhere/run"):
            # Restarted, as after the end of a node, it finds nothing to do and stays too.
            learner = services.start("learner", *STAYS, "--stop.env_frames", "5000", "--copy_to", address_of_copy)
            until(lambda: RUN_IS_OVER in (page(f"{url}/readyz") or ""), "the run to be over")
            assert (COPY_IS_INCOMPLETE in (page(f"{url}/readyz") or "")) == ("nowhere" in address_of_copy)
            assert page(f"{url}/healthz")
            assert "herd_learner_run_is_over 1.0" in (page(f"{url}/metrics") or "")
            assert read_report(run_dir)["env_frames"] >= 5000
            assert learner.is_running()
            services.stop("learner")
            left_in_order(run_dir)


class Shards:
    """Two shards with the environment variables that the chart sets."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch
        self.rendezvous, self.paramserver, *self._ports = free_ports(6)
        self.unrolls, self.metrics = self._ports[:2], [f"http://127.0.0.1:{port}" for port in self._ports[2:]]

    def start(self, rank: int, group: str) -> Process:
        variables = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(self.rendezvous)}
        for name, value in {**variables, "TORCHELASTIC_RUN_ID": group}.items():
            self._monkeypatch.setenv(name, value)
        words = {
            "run_dir": self._folder / f"run-{rank}",  # a pod has its own disk; only that of shard 0 holds checkpoints
            "learner.shards": 2,
            "listen": f"127.0.0.1:{self.unrolls[rank]}",
            "paramserver": address(self.paramserver),
            "metrics": f"127.0.0.1:{self._ports[2 + rank]}",
            "learner.threads": 1,
            "learner.log_interval_seconds": 0.2,
            "stop.env_frames": "null",
        }
        settings = [word for name, value in words.items() for word in (f"--{name}", str(value))]
        return Process(self._folder / f"{rank}-{group}.out", "herd_learner", "--config", CATCH, *settings, *STAYS)


def test_shards_answer_probes_while_waiting_and_end_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = Shards(tmp_path, monkeypatch)
    learners = ",".join(address(port) for port in shards.unrolls)
    at = ("--config", CATCH, "--run_dir", str(tmp_path / "others"))
    served = ("--listen", f"127.0.0.1:{shards.paramserver}")
    fed = ("--index", "0", "--learner", learners, "--paramserver", address(shards.paramserver))
    with (
        Process(tmp_path / "paramserver.out", "herd_paramserver", *at, *served),
        Process(tmp_path / "actor.out", "herd_actor", *at, *fed),
    ):
        for start in range(2):
            with shards.start(1, "new") as second:
                until(lambda: page(f"{shards.metrics[1]}/healthz"), "the second shard to be alive")
                assert not page(f"{shards.metrics[1]}/readyz")
                with shards.start(0, "new") as first:
                    until(lambda: all(page(f"{url}/readyz") for url in shards.metrics), "both shards to train")
                    until(lambda: any(point["env_frames"] for point in read_points(tmp_path / "run-0")), "an update")
                    # An upgrade replaces one shard: the other must not mistake this for the end of the run, and keep running.
                    assert second.stop(signal.SIGTERM) == 0, second.output
                    assert first.wait() == 0, first.output
                    assert ("resumed" in second.output) == (start > 0)  # from the checkpoint of shard 0


def test_a_shard_waits_for_others_of_its_version_without_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints none of torch's stack traces, which would come with every attempt to connect."""
    shards = Shards(tmp_path, monkeypatch)
    with shards.start(1, "new") as new:
        until(lambda: "waiting for shard 0" in new.output or not new.is_running(), "the second shard to wait")
        assert "waiting for shard 0" in new.output
        with shards.start(0, "old") as old:
            until(lambda: "waiting for shards" in old.output, "the old one to wait")
            assert all(page(f"{url}/healthz") for url in shards.metrics)
            assert not any(page(f"{url}/readyz") for url in shards.metrics)
            for process in (new, old):
                assert process.stop(signal.SIGTERM) == 0, process.output
        assert [trace for trace in ("frame #", "Exception raised from", "[c10d]") if trace in new.output] == []
