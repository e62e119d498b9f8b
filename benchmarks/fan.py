"""Common parts of fan-in and fan-out: processes that answer lines of JSON, and limits for thousands of connections."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from benchmarks.machine.stages import stage_environment
from herd.config.loading import load_settings
from herd.config.loading.sources import split_arguments
from herd.service.host import describe_hardware
from herd.transport.connections import MAX_CONNECTIONS, SPARE_DESCRIPTORS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from types import TracebackType

    from herd.config.run import RunSettings

ROOT = Path(__file__).parents[1]
POLL_SECONDS = 0.02
"""Longest sleep of a process between checks for commands."""
STOP_SECONDS = 10.0
CLIENTS_PER_CONTEXT = 250
"""A ZeroMQ context has 1,023 sockets, and a client takes three."""
DESCRIPTORS_PER_CLIENT = 4
"""Its connection, and one descriptor each for ZeroMQ's socket, its monitor, and the reading end of the monitor."""

Line = dict[str, Any]


class Child:
    """A process of the measurement. It answers each command, and ends with its input."""

    def __init__(self, module: str, *words: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, words)],
            cwd=ROOT,
            env=stage_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._name = module
        self._times = psutil.Process(self._process.pid)

    def hear(self) -> Line:
        """Wait for its next answer and return it. What it logs on the way goes to this process's standard error."""
        assert self._process.stdout is not None
        for line in iter(self._process.stdout.readline, ""):
            if line.startswith("{"):
                answer: Line = json.loads(line)
                return answer
            print(line, end="", file=sys.stderr, flush=True)
        raise RuntimeError(f"{self._name} ended with exit code {self._process.wait()}")

    def ask(self, do: str) -> Line:
        """Send a command and return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do}) + "\n")
        self._process.stdin.flush()
        return self.hear()

    def cpu_seconds(self) -> float:
        spent = self._times.cpu_times()
        return spent.user + spent.system

    def resident_bytes(self) -> int:
        return int(self._times.memory_info().rss)

    def check(self) -> None:
        """Raise if the process has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"{self._name} ended with exit code {self._process.returncode}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def serve(turn: Callable[[], None], answers: dict[str, Callable[[], Line]]) -> None:
    """Run ``turn`` repeatedly and answer commands until standard input ends."""
    os.set_blocking(sys.stdin.fileno(), False)
    rest = b""
    while True:
        turn()
        try:
            chunk = os.read(sys.stdin.fileno(), 1 << 16)
        except BlockingIOError:
            continue
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            say(answers[json.loads(line)["do"]]())


def say(line: Line) -> None:
    print(json.dumps(line), flush=True)


def allow_connections(num_clients: int, *, servers: int, processes: int) -> None:
    """Raise the limit of open files as far as possible; exit with one line if it is too low."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    needed = max(-(-num_clients // servers) + SPARE_DESCRIPTORS, -(-num_clients // processes) * DESCRIPTORS_PER_CLIENT + SPARE_DESCRIPTORS)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise SystemExit(
            f"{num_clients:,} clients need {needed:,} open files in one process, and {hard:,} are allowed (ulimit -Hn {needed})"
        )
    if num_clients > MAX_CONNECTIONS * servers:
        raise SystemExit(f"one server takes {MAX_CONNECTIONS:,} connections, not {num_clients:,}")


def shares(total: int, parts: int) -> list[int]:
    """Return ``total`` split into ``parts`` numbers that differ by at most 1."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def wait(seconds: float, *others: Callable[[], None]) -> None:
    """Wait, and call ``others`` every hundredth of a second."""
    until = time.monotonic() + seconds
    while (rest := until - time.monotonic()) > 0:
        for turn in others:
            turn()
        time.sleep(min(0.01, rest))


def busy_cores() -> float:
    """Return the cores used by all programs since the last call; the first result is meaningless."""
    return psutil.cpu_percent() / 100.0 * (psutil.cpu_count() or 1)


def settings_of(name: str, words: list[str], *more: str) -> RunSettings:
    """Return the settings of a command line; without a file, the Atari defaults."""
    files, overrides = split_arguments(words)
    return load_settings(files, [*([] if files else ["--name", name]), *overrides, *more], os.environ)


def circumstances(settings: RunSettings, options: argparse.Namespace) -> Line:
    """Return what a report says in addition to its figures."""
    date = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    return {"hardware": describe_hardware(), "date": date, "options": vars(options), "settings": settings.model_dump(mode="json")}
