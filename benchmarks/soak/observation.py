"""Observes a run from outside: metrics of every process, weights of every parameter server, checkpoints, memory, the curve."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil

from herd.components.suites import environment_spec
from herd.config.loading import load_settings
from herd.config.run_contract import contract_digest
from herd.launch.readings import metrics_url
from herd.protocols.unrolls import metrics as unroll_metrics
from herd.protocols.weights import metrics as weight_metrics
from herd.protocols.weights.client import WeightsClient
from herd.run.journals import newest_point
from herd.telemetry import metrics
from herd.telemetry import training as training_metrics
from herd.telemetry.scrape import Samples, ScrapeError, scrape, total
from herd.transport.context import Context

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from benchmarks.soak.promises import Version
    from benchmarks.soak.proxied_run import ProxiedRun

SCRAPE_SECONDS = 0.5
"""Timeout: localhost answers in milliseconds, and a starting or busy process is asked again soon."""
ASK_SECONDS = 1.0
"""Interval of requests to a parameter server, whose answers contain the complete weights."""

_WORK = {
    "learner": training_metrics.LEARNER_UPDATES.name,
    "actor": unroll_metrics.ACTOR_UNROLLS_SENT.name,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of one process at one time."""

    pid: int
    versions: Mapping[int, Version]
    """Version of the weights that it holds, by agent; (0, 0) before any. Empty if unknown, or if the process may change agents."""
    work: float
    """Work of this process: the learner's updates, an actor's sent unrolls."""
    unacknowledged: float = 0.0
    """Number of unrolls that an actor keeps."""

    @property
    def version(self) -> Version:
        """The oldest of its versions."""
        return min(self.versions.values(), default=(0, 0))


@dataclass(frozen=True, slots=True)
class Observation:
    """All answers at one time."""

    at: float
    """time.monotonic() in seconds."""
    processes: Mapping[str, Reading] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Served:
    """The answer of a parameter server to a client without weights."""

    server: str
    agent: int
    version: Version
    contents: str
    """Digest of the weights."""


@dataclass(frozen=True, slots=True)
class Resident:
    """Memory of one process at one time."""

    process: str
    pid: int
    age_seconds: float
    """Seconds since its start."""
    bytes: int


def observe(run: ProxiedRun, *, asleep: Collection[str] = ()) -> Observation:
    """Scrape all processes except those known not to answer."""
    readings = {}
    for name in run.children:
        pid = None if name in asleep else run.pid(name)
        url = None if pid is None else metrics_url(run.run_dir, name, pid)
        if pid is None or url is None:
            continue
        try:
            samples = scrape(url, SCRAPE_SECONDS)
        except ScrapeError:
            continue
        readings[name] = _reading(name, pid, samples, run.num_agents)
    return Observation(time.monotonic(), readings)


def _reading(name: str, pid: int, samples: Samples, num_agents: int) -> Reading:
    service, _, number = name.rpartition("-")
    work = total(samples, _WORK.get(service, ""))
    return Reading(
        pid, _versions(service, int(number), samples, num_agents), work, total(samples, unroll_metrics.ACTOR_UNACKNOWLEDGED.name)
    )


def _versions(service: str, number: int, samples: Samples, num_agents: int) -> dict[int, Version]:
    if num_agents > 1 and service == "paramserver":
        names = (weight_metrics.PARAMSERVER_AGENT_LINEAGE.name, weight_metrics.PARAMSERVER_AGENT_UPDATES.name)
        return {agent: _pair(total(samples, name, agent=str(agent)) for name in names) for agent in range(num_agents)}
    if num_agents > 1 and service != "learner":
        return {}
    version = _pair(total(samples, name) for name in (metrics.WEIGHTS_LINEAGE.name, metrics.WEIGHTS_UPDATES.name))
    return {number if num_agents > 1 else 0: version}


def _pair(values: Iterable[float]) -> Version:
    lineage, updates = map(round, values)
    return lineage, updates


class Onlookers:
    """A client of each parameter server for each agent, without weights, so that it sees what a new actor would see."""

    def __init__(self, run: ProxiedRun) -> None:
        """Start connecting; call ``look`` and ``close`` from this thread."""
        settings = load_settings([run.run_dir / "config.yaml"], [], {})
        contract = contract_digest(settings, environment_spec(settings.env))
        self._context = Context(settings.security)
        self._clients = {
            (server, agent): WeightsClient(
                self._context, run.onlooker_address(server), run_id=settings.name, agent=agent, contract=contract
            )
            for server in run.paramservers
            for agent in range(run.num_agents)
        }
        self._ask_at = dict.fromkeys(self._clients, 0.0)

    def look(self) -> list[Served]:
        """Return new answers, and send requests that are due. Never blocks."""
        now = time.monotonic()
        found = []
        for (server, agent), client in self._clients.items():
            frame = client.poll()
            if frame is not None:
                contents = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in frame.slices)).hexdigest()
                found.append(Served(server, agent, frame.version, contents))
            if now >= self._ask_at[server, agent]:
                self._ask_at[server, agent] = now + ASK_SECONDS
                client.request(None)
        return found

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()
        self._context.destroy()


class Checkpoints:
    """Reads each checkpoint's state of one agent once."""

    def __init__(self, agent_directory: Path) -> None:
        self._directory = agent_directory / "checkpoints"
        self._seen: dict[str, int] = {}

    def new_states(self) -> list[dict[str, Any]]:
        """Return the states of all new checkpoints since the last call, oldest first."""
        found: list[tuple[int, dict[str, Any]]] = []
        present: dict[str, int] = {}
        for path in self._directory.glob("[0-9]" * 12):
            try:
                written = (path / "manifest.json").stat().st_mtime_ns
                present[path.name] = written
                # A restored learner may reuse a number, so the time distinguishes checkpoints.
                if self._seen.get(path.name) != written:
                    found.append((written, json.loads((path / "state.json").read_text())))
            except FileNotFoundError:
                continue  # removed in the meantime
        self._seen = present
        return [state for _, state in sorted(found, key=lambda item: item[0])]


def residents(run: ProxiedRun) -> list[Resident]:
    """Return the resident memory of every living process of the run, including the supervisor."""
    pids = {"supervisor": run.supervisor_pid} | {name: pid for name in run.children if (pid := run.pid(name)) is not None}
    found = []
    for name, pid in pids.items():
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                age = time.time() - process.create_time()
                found.append(Resident(name, pid, age, process.memory_info().rss))
        except psutil.NoSuchProcess:
            continue
    return found


def curve_point(run: ProxiedRun) -> dict[str, Any]:
    """Return the newest point of the first agent's learning curve; empty before the first."""
    return newest_point(run.agent_directories[0])
