"""A small real run on Catch. Each process is started by hand and is not restarted, so that no crash is overlooked."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from herd.components.suites import environment_spec
from herd.config.loading import load_settings
from herd.config.run_contract import contract_digest, run_layout
from herd.telemetry.scrape import Samples, ScrapeError, scrape, total

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

ROOT = Path(__file__).parents[2]
CATCH = ROOT / "experiments" / "catch.yaml"
START_SECONDS = 300.0
"""Timeout of actions that take seconds on an idle machine."""
MEMBERS = [
    *("--agents", "2", "--sweep", '{"loss.entropy_cost": [0.01, 0.02]}', "--population.strategy", "pbt"),
    *("--population.fitness", "episode_return"),
]
"""What only the population is started with: its members are attackers."""
DESCRIPTORS = 2048
"""Open files of each server: a usual limit, and small enough to be exhausted."""


class Process:
    """One process of the run."""

    def __init__(self, name: str, service: str, number: int, port: int | None, run_dir: Path, words: list[str]) -> None:
        self.name = name
        self.port = port
        self._announcement = run_dir / "processes" / f"{service}-{number}.json"
        self._output = run_dir / f"{name}.out"
        listen = [] if port is None else ["--listen", f"127.0.0.1:{port}"]
        with self._output.open("w") as output:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", f"herd_{service}", "--config", str(CATCH), "--run_dir", str(run_dir), *listen, *words],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={name: value for name, value in os.environ.items() if not name.startswith("HERD_")},
                preexec_fn=_limit_descriptors,  # noqa: PLW1509  there are no threads yet
            )

    @property
    def is_alive(self) -> bool:
        return self.popen.poll() is None

    @property
    def metrics_port(self) -> int | None:
        """The port of its metrics; None until it has announced it."""
        try:
            said = json.loads(self._announcement.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return int(said["metrics_port"]) if said["pid"] == self.popen.pid else None

    def metrics(self) -> Samples:
        """Return all samples; repeat the request if hostile connections block it."""
        for attempt in range(20):
            try:
                return scrape(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10.0)
            except ScrapeError:
                if not self.is_alive:
                    raise RuntimeError(f"{self.name} ended with {self.popen.poll()}: {self.last_words()}") from None
                if attempt == 19:
                    raise
                time.sleep(0.5)
        raise AssertionError

    def resident_bytes(self) -> int:
        """Resident memory (RSS)."""
        return int(psutil.Process(self.popen.pid).memory_info().rss)

    def peak_resident_bytes(self) -> int:
        """Peak resident memory since the start."""
        return self._status("VmHWM:")

    def anonymous_bytes(self) -> int:
        """Allocated memory, resident or swapped out, without pages of files, which the kernel may drop at any time."""
        return self._status("RssAnon:", "VmSwap:")

    def _status(self, *names: str) -> int:
        lines = Path(f"/proc/{self.popen.pid}/status").read_text().splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(names))

    def last_words(self) -> str:
        """Return the end of its output."""
        return self._output.read_text(errors="replace")[-2000:]

    def end(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(START_SECONDS)


class CatchRun:
    """Root and replica of the parameter server, bandit, replay, population, inference, learner, and one honest actor."""

    def __init__(self, run_dir: Path) -> None:
        """Start everything, and wait until the learner trains.

        Raises:
            RuntimeError: a process ended, or the learner did not train in time.
        """
        run_dir.mkdir(parents=True, exist_ok=True)
        self.run_dir = run_dir
        learner, root, replica, bandit, replay, population, inference = _free_ports(7)
        self.settings = load_settings([CATCH], [], {})
        self.settings_of_members = load_settings([CATCH], MEMBERS, {})
        spec = environment_spec(self.settings.env)
        self.run_id = self.settings.name
        self.contract = contract_digest(self.settings, spec)
        self.layout = run_layout(self.settings, spec)
        self.action_repeat = spec.action_repeat
        self._stack = ExitStack()
        self.processes: dict[str, Process] = {}
        parent, leaf = f"tcp://127.0.0.1:{root}", f"tcp://127.0.0.1:{replica}"
        endless = ["--stop.env_frames", "null", "--optimizer.schedule", "constant"]
        try:
            self._start("paramserver", "paramserver", 0, root, [])
            self._start("replica", "paramserver", 1, replica, ["--paramserver", parent, "--index", "1"])
            self._start("bandit", "bandit", 0, bandit, [])
            # Only attackers send requests to it.
            self._start("replay", "replay", 0, replay, ["--replay.kind", "shared", "--actor.environments", "4"])
            self._start("population", "population", 0, population, MEMBERS)
            acting = ["--paramserver", parent, "--actor.inference", "remote"]
            self._start("inference", "inference", 0, inference, acting)
            words = ["--paramserver", parent, "--learner.threads", "1", *endless]
            # A server returns free memory every half minute, a learner after each checkpoint, by default every five minutes.
            words += ["--learner.checkpoint_interval_seconds", "30"]
            self._start("learner", "learner", 0, learner, words)
            to_learner = ["--learner", f"tcp://127.0.0.1:{learner}", "--paramserver", leaf, "--index", "0"]
            # Catch would otherwise take most of the processor time.
            self._start("actor", "actor", 0, None, [*to_learner, "--env.step_seconds", "0.01"])
            self.until(lambda: all(process.metrics_port for process in self.processes.values()), "every process serves metrics")
            self.until(lambda: self.updates() >= 20, "twenty updates")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start(self, name: str, service: str, number: int, port: int | None, words: list[str]) -> None:
        process = Process(name, service, number, port, self.run_dir, words)
        self.processes[name] = process
        self._stack.callback(process.popen.wait)
        self._stack.callback(process.popen.kill)

    def __getitem__(self, name: str) -> Process:
        return self.processes[name]

    def until(self, condition: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
        """Wait for a condition, and check that all processes live."""
        deadline = time.monotonic() + seconds
        while not condition():
            for process in self.processes.values():
                if not process.is_alive:
                    raise RuntimeError(f"{process.name} ended: {process.last_words()}")
            if time.monotonic() >= deadline:
                raise RuntimeError(f"not within {seconds:g} s: {what}")
            time.sleep(0.1)

    def updates(self) -> float:
        """The learner's updates so far."""
        return total(self["learner"].metrics(), "herd_learner_updates_total")

    def close(self) -> None:
        """Kill all processes that still run."""
        self._stack.close()

    def end(self) -> dict[str, int]:
        """Send SIGTERM to all, the actor first; return the exit codes by name."""
        order = ("actor", "learner", "inference", "population", "replay", "bandit", "replica", "paramserver")
        return {name: self.processes[name].end() for name in order}

    def report(self) -> dict[str, Any]:
        """Return report.json, which the learner writes at its end."""
        report: dict[str, Any] = json.loads((self.run_dir / "report.json").read_text())
        return report

    def accounts(self) -> dict[tuple[int, int], int]:
        """Return the env frames that each incarnation generated, from the learner's last checkpoint."""
        newest = max((self.run_dir / "checkpoints").glob("[0-9]" * 12))
        ledger = json.loads((newest / "state.json").read_text())["ledger"]
        return {(index, incarnation): generated for index, incarnation, _, generated in ledger["accounts"]}


def _limit_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [one.getsockname()[1] for one in held]
