"""Parameter server, learner and actor of Catch without a supervisor, as in a cluster, and checks of the files that they leave."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from herd.run.checkpoints import newest_checkpoint
from herd.run.tensors import Checkpoint, load_checkpoint
from herd.service.identity import Endpoint, Identity
from tests.system.whole_runs import CATCH, SECONDS, Process, free_ports, pid_of, read_points, read_report, until

SERVICES = ("actor", "learner", "paramserver")


def address(port: int) -> str:
    return f"tcp://127.0.0.1:{port}"


class Services:
    """Starts services one by one with the same configuration. Use as a context manager, which ends them."""

    def __init__(self, run_dir: Path, *words: str, learner_port: int | None = None, paramserver_port: int | None = None) -> None:
        self.run_dir = run_dir
        self.ports = free_ports(4)
        learner, paramserver = learner_port or self.ports[0], paramserver_port or self.ports[1]
        learner_metrics, paramserver_metrics = (Endpoint(port=port) for port in self.ports[2:])
        asks = {"paramserver": (address(paramserver),)}
        self._identities = {
            "paramserver": Identity(listen=Endpoint(port=paramserver), metrics=paramserver_metrics),
            "learner": Identity(listen=Endpoint(port=learner), metrics=learner_metrics, addresses=asks),
            "actor": Identity(addresses={"learner": (address(learner),), **asks}),
        }
        self._settings = {"learner.threads": 1, "learner.log_interval_seconds": 0.2, "stop.env_frames": "null"}
        self._words = words
        self.processes: dict[str, Process] = {}

    def __enter__(self) -> Services:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes.values():
            process.__exit__()

    def start(self, service: str, *words: str, name: str | None = None) -> Process:
        """Start a service; the words are additional settings of this process only. ``name``: of a second process of the service."""
        settings = [word for key, value in self._settings.items() for word in (f"--{key}", str(value))]
        output = self.run_dir.with_name(f"{self.run_dir.name}-{name or service}.out")
        own = self._identities[service].words()
        process = Process(output, f"herd_{service}", "--config", CATCH, "--run_dir", self.run_dir, *own, *settings, *self._words, *words)
        self.processes[name or service] = process
        return process

    def start_all(self, *words: str) -> None:
        for service in SERVICES:
            self.start(service, *words, *(["--index", "0"] if service == "actor" else []))

    def until_announced(self, service: str) -> None:
        """Wait until the process has announced itself: from now on it does its work."""
        self._until(lambda: pid_of(self.run_dir, f"{service}-0") is not None, f"{service} to announce itself")

    def until_trained(self, env_frames: int = 5_000) -> None:
        """Wait until the learner has trained on this many frames."""
        self._until(lambda: any(point["env_frames"] >= env_frames for point in read_points(self.run_dir)), "frames to be trained on")

    def until_starved(self) -> None:
        """Wait until the learner gets no more unrolls to train on."""

        def starved() -> bool:
            frames = [point["env_frames"] for point in read_points(self.run_dir)[-3:]]
            return len(frames) == 3 and len(set(frames)) == 1

        self._until(starved, "the learner to starve")

    def stop(self, service: str, number: int = signal.SIGTERM) -> None:
        """Stop a service, and check that it ends in order."""
        process = self.processes[service]
        assert process.is_running(), process.output
        assert process.stop(number) == 0, process.output
        assert "Traceback" not in process.output

    def output(self) -> str:
        """The output of all services."""
        return "\n".join(process.output for process in self.processes.values())

    def _until(self, condition: Any, what: str) -> None:
        def met() -> bool:
            assert all(process.is_running() for process in self.processes.values()), self.output()
            return bool(condition())

        until(met, what)


def left_in_order(run_dir: Path) -> Checkpoint:
    """Check that the run ended cleanly: checkpoint, report and curve belong to the same moment. Returns the checkpoint."""
    report = read_report(run_dir)
    path = newest_checkpoint(run_dir / "checkpoints")
    assert path is not None
    checkpoint = load_checkpoint(path)
    state, ledger = checkpoint.state, dict(checkpoint.state["ledger"])
    del ledger["accounts"], ledger["tasks"]  # the report lists tasks elsewhere
    assert checkpoint.learner_updates == state["learner_updates"] == report["learner_updates"]
    assert state["statistics"]["env_frames"] == report["env_frames"] == read_points(run_dir)[-1]["env_frames"]
    assert ledger == {name: frames for name, frames in report["accounting"].items() if name != "unattributed"}
    leftovers = [path for path in run_dir.rglob("*") if path.name.endswith((".tmp", ".writing", ".removing", ".replaced"))]
    assert leftovers == []
    return checkpoint


def assert_free(ports: Iterable[int]) -> None:
    """Check that the ports are free, so that the next run can use them."""
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def assert_nobody_left(processes: Iterable[psutil.Process], *, seconds: float = SECONDS) -> None:
    """Wait until all processes have ended; a zombie that init has not collected yet counts as ended."""

    def alive() -> list[psutil.Process]:
        return [process for process in processes if _is_alive(process)]

    until(lambda: not alive(), f"the end of {alive()}", seconds=seconds)


def processes_of(run_dir: Path) -> list[psutil.Process]:
    """Every process whose command line names this run directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(run_dir) in process.cmdline() and _is_alive(process):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
