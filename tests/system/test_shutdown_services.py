"""Each service is stopped before and after each other one, with peers that run, are gone, hang or are stopped: it ends with exit code 0."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.three_services import SERVICES, Services, assert_free, left_in_order, processes_of
from tests.system.whole_runs import SECONDS, lineage_of, read_report


def test_services_stop_cleanly_one_after_another(tmp_path: Path) -> None:
    """The learner stops last, without any peer; a later test stops the parameter server last."""
    run_dir = tmp_path / "run"
    with Services(run_dir, "--learner.checkpoint_interval_seconds", "3600") as services:
        services.start_all("--resume", "true", "--stop.wait_for_signal", "true")  # as pods are started
        services.until_trained()
        for service in ("paramserver", "actor", "learner"):
            services.stop(service)
        checkpoint = left_in_order(run_dir)  # the only checkpoint, written because of the request to stop
        assert checkpoint.learner_updates > 0
        assert processes_of(run_dir) == []
        assert_free(services.ports)

        before = read_report(run_dir)
        services.start("learner", "--resume", "true", "--stop.env_frames", "1")
        assert services.processes["learner"].wait() == 0, services.output()
        after = read_report(run_dir)
        assert (after["env_frames"], after["learner_updates"]) == (before["env_frames"], before["learner_updates"])
        assert after["accounting"]["dropped"].get("learner_restart", 0) == before["accounting"]["in_flight"]
        assert after["accounting"]["generated"] == before["accounting"]["generated"]
        assert lineage_of(run_dir) == 2


@pytest.mark.parametrize(
    ("service", "words", "number"),
    [
        ("actor", ("--index", "0", "--actor.weights_timeout_seconds", "3600"), signal.SIGTERM),
        ("learner", (), signal.SIGINT),
        ("paramserver", (), signal.SIGHUP),
    ],
)
def test_a_service_without_peers_stops_cleanly(tmp_path: Path, service: str, words: tuple[str, ...], number: signal.Signals) -> None:
    with Services(tmp_path / "run") as services:
        process = services.start(service, *words)
        services.until_announced(service)
        for _ in range(2):  # an impatient platform may repeat its signal
            os.kill(process.pid, number)
        assert process.wait() == 0, process.output
        assert "Traceback" not in process.output
        if service == "learner":
            assert not (tmp_path / "run" / "report.json").exists()  # it has trained nothing
        assert_free(services.ports)


@pytest.fixture
def hung_server() -> Iterator[socket.socket]:
    """A server that accepts connections but never answers, like a process that hangs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        yield server


@pytest.mark.parametrize("words", [("--index", "0"), ()], ids=["index", "lease"])
def test_an_actor_whose_peers_hang_stops_cleanly(tmp_path: Path, hung_server: socket.socket, words: tuple[str, ...]) -> None:
    port = hung_server.getsockname()[1]
    with Services(tmp_path / "run", learner_port=port, paramserver_port=port) as services:
        services.start("actor", *words)
        connection, _ = hung_server.accept()
        with connection:
            services.stop("actor")


def test_services_stop_cleanly_while_peers_are_stopped(tmp_path: Path) -> None:
    """Stopped processes keep their connections: messages to them are not delivered, and no process may wait for that."""
    run_dir = tmp_path / "run"
    with Services(run_dir, "--actor.weights_timeout_seconds", "3600") as services:
        services.start_all()
        services.until_trained()
        pids = {service: services.processes[service].pid for service in SERVICES}
        os.kill(pids["paramserver"], signal.SIGSTOP)
        services.until_starved()  # the actor waits for weights as long as its setting says
        os.kill(pids["learner"], signal.SIGSTOP)
        services.stop("actor")
        os.kill(pids["learner"], signal.SIGCONT)
        services.stop("learner")
        os.kill(pids["paramserver"], signal.SIGTERM)  # delivered when it continues
        os.kill(pids["paramserver"], signal.SIGCONT)
        assert services.processes["paramserver"].wait() == 0
        left_in_order(run_dir)
        assert_free(services.ports)
