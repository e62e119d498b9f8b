"""A tree of real parameter servers on this machine, for ``herd bench fan-out``."""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from herd.bench.fan.child import Child, peak_memory_bytes
from herd.bench.stages import StageError
from herd.config.loading import dump_settings
from herd.supervisor.ports import choose_ports, local_address
from herd.telemetry.scrape import ScrapeError, scrape, total

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from herd.config.settings import RunSettings

START_SECONDS = 60.0
SCRAPE_SECONDS = 10.0
ROOT = 0
"""Level of the root; its replicas are level 1, and the highest level serves the clients."""


@dataclass(frozen=True, slots=True)
class ServerReading:
    """One server at one moment, cumulative but for memory."""

    cpu_seconds: float
    weights: float
    """Answers with weights."""
    not_modified: float
    requests: float
    """Questions for weights."""
    bytes_out: float
    resident_bytes: int
    peak_resident_bytes: int


class Server:
    """One ``herd_paramserver``."""

    def __init__(self, settings: RunSettings, directory: Path, *, level: int, index: int, upstream: str | None) -> None:
        host = settings.paramserver.host
        port = choose_ports({"paramserver.port": (host, 0)})["paramserver.port"]
        own = settings.paramserver.model_copy(update={"port": port, "metrics_port": 0, "index": index, "upstream": upstream})
        config = directory / f"paramserver-{index}.yaml"
        config.write_text(dump_settings(settings.model_copy(update={"paramserver": own, "run_dir": directory})))
        self.level = level
        self.name = "root" if upstream is None else f"replica {index}"
        self.endpoint = local_address(host, port)
        self.child = Child(self.name, [sys.executable, "-m", "herd_paramserver", "--config", str(config)], talks=False)
        self._announcement = directory / "processes" / f"paramserver-{index}.json"
        self._process = psutil.Process(self.child.pid)
        self._metrics: str | None = None

    def wait_until_listening(self) -> None:
        """Wait for its announcement.

        Raises:
            StageError: it ended, or takes too long.

        """
        deadline = time.monotonic() + START_SECONDS
        while not self._announcement.exists():
            self.child.check()
            if time.monotonic() > deadline:
                raise StageError(f"{self.name}: not listening after {START_SECONDS:g} s")
            time.sleep(0.02)
        self._metrics = f"http://127.0.0.1:{json.loads(self._announcement.read_text())['metrics_port']}/metrics"

    def read(self) -> ServerReading:
        """Everything now.

        Raises:
            StageError: it does not answer.

        """
        assert self._metrics is not None
        try:
            samples = scrape(self._metrics, timeout=SCRAPE_SECONDS)
        except ScrapeError as error:
            raise StageError(f"{self.name}: {error}") from error
        spent = self._process.cpu_times()
        return ServerReading(
            cpu_seconds=spent.user + spent.system,
            weights=total(samples, "herd_paramserver_answers_total", answer="weights"),
            not_modified=total(samples, "herd_paramserver_answers_total", answer="not_modified"),
            requests=total(samples, "herd_paramserver_requests_total", kind="get_weights"),
            bytes_out=total(samples, "herd_wire_sent_bytes_total"),
            resident_bytes=self._process.memory_info().rss,
            peak_resident_bytes=peak_memory_bytes(self.child.pid),
        )


def level_sizes(replicas: int, depth: int) -> list[int]:
    """Replicas by level, from below the root down: the lowest has ``replicas``, each above half as many as the one below it."""
    return [math.ceil(replicas / 2 ** (depth - 1 - level)) for level in range(depth)] if replicas else []


def start_tree(settings: RunSettings, directory: Path, started: ExitStack, *, replicas: int, depth: int) -> list[Server]:
    """Start the root and its replicas, level by level; ``started`` ends them.

    Raises:
        StageError: one of them does not start.

    """
    servers: list[Server] = []

    def start(level: int, upstream: str | None) -> Server:
        server = Server(settings, directory, level=level, index=len(servers), upstream=upstream)
        started.enter_context(server.child)
        servers.append(server)
        return server

    parents = [start(ROOT, None)]
    for level, size in enumerate(level_sizes(replicas, depth), start=1):
        parents = [start(level, parents[place % len(parents)].endpoint) for place in range(size)]
    for server in servers:
        server.wait_until_listening()
    return servers
