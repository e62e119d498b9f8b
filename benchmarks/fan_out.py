"""Measures how long a new version of the weights takes to reach thousands of clients, and its cost: ``python -m benchmarks.fan_out``.

It runs a real parameter server, real replicas, and simulated clients of the replicas. Each client requests newer weights at a fixed
interval, verifies them as an actor does, and checks that versions never go back and that all slices belong to their version. It prints one
JSON object. 5,000 actors with one environment each that make 250,000 frames/s send a request every 1.6 s.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import select
import statistics
import struct
import sys
import tempfile
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.fan import (
    CLIENTS_PER_CONTEXT,
    POLL_SECONDS,
    Child,
    Line,
    allow_connections,
    busy_cores,
    circumstances,
    say,
    serve,
    settings_of,
    shares,
    wait,
)
from herd.components.suites import environment_spec
from herd.config.addresses import local_host, tcp_address
from herd.config.loading import dump_settings, load_settings
from herd.config.run_contract import contract_digest
from herd.launch.plan import held_ports
from herd.protocols.weights.client import Version, WeightsClient, WeightsFrame, WeightsPublisher
from herd.service.identity import Endpoint, Identity
from herd.telemetry.scrape import scrape, total
from herd.transport.context import Context

if TYPE_CHECKING:
    from herd.config.run import RunSettings

IDLE_SECONDS = 2.0
"""Duration of the measurement of servers without clients."""
SWEEP_SECONDS = 0.25
"""Interval of checks of a client that receives nothing: its repetitions and its connection wait as long."""
MARK = struct.Struct("<qqq")
"""Marks at both ends of a slice: lineage, updates, index."""
LINEAGE = 1


def marked(version: Version, index: int, filling: bytes) -> bytes:
    """Return a slice with marks at both ends and ``filling`` between them."""
    mark = MARK.pack(*version, index)
    return mark + filling[: -2 * MARK.size] + mark


def is_whole(frame: WeightsFrame) -> bool:
    """Return whether the marks of all slices match the version."""
    marks = [(MARK.unpack(slice_[: MARK.size]), MARK.unpack(slice_[-MARK.size :])) for slice_ in frame.slices]
    return all(mark == ((*frame.version, index),) * 2 for index, mark in enumerate(marks))


class Client:
    """One client and the versions that it has received."""

    def __init__(self, client: WeightsClient) -> None:
        self.client = client
        self.version: Version | None = None
        self.is_asking = False


class Clients:
    """All clients of this process, in one thread.

    At most ``concurrent`` have a request under way, because all answers are in this machine's memory; the others wait.
    """

    def __init__(self, settings: RunSettings, endpoints: list[str], *, count: int, ask_seconds: float, concurrent: int, seed: int) -> None:
        contract = contract_digest(settings, environment_spec(settings.env))
        self._epoll = select.epoll()
        self._by_descriptor: dict[int, Client] = {}
        for place in range(count):
            if place % CLIENTS_PER_CONTEXT == 0:
                context = Context(settings.security)
            client = WeightsClient(context, endpoints[place % len(endpoints)], run_id=settings.name, contract=contract)
            self._by_descriptor[client.socket.fileno()] = Client(client)
            self._epoll.register(client.socket.fileno(), select.EPOLLIN)
        self._ask_seconds, self._concurrent, self._random = ask_seconds, concurrent, random.Random(seed)
        self._due: list[tuple[float, int]] = []
        """When each client's next request is due, earliest first."""
        self._waiting: deque[Client] = deque()
        self._asking: dict[Client, None] = {}
        self._sweep_at = 0.0
        self._held_at: dict[int, list[float]] = {}
        """For each version, the times at which clients had it or a newer one; in monotonic seconds, which processes share."""
        self._went_back = self._in_part = 0

    def start(self) -> Line:
        """Start the clients at different moments of the interval."""
        now = time.monotonic()
        self._due = sorted((now + self._random.uniform(0.0, self._ask_seconds), descriptor) for descriptor in self._by_descriptor)
        return {}

    def turn(self) -> None:
        """Send requests that are due, as far as allowed, and read answers."""
        events = self._epoll.poll(max(0.0, min(POLL_SECONDS, self._due[0][0] - time.monotonic())) if self._due else POLL_SECONDS)
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            self._waiting.append(self._by_descriptor[heapq.heappop(self._due)[1]])
        while self._waiting and len(self._asking) < self._concurrent:
            client = self._waiting.popleft()
            self._asking[client] = None
            client.client.request(client.version)
            client.is_asking = True
            self._serve(client)  # the descriptor signals once: read what arrived during sending now
        for descriptor, _ in events:
            self._serve(self._by_descriptor[descriptor])
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECONDS
            for client in list(self._asking):
                self._serve(client)

    def _serve(self, client: Client) -> None:
        frame = client.client.poll()
        if not client.is_asking or (frame is None and client.client.pending):
            return  # at most an answer to an abandoned request
        now = time.monotonic()
        client.is_asking = False
        self._asking.pop(client, None)
        heapq.heappush(self._due, (now + self._ask_seconds * self._random.uniform(0.95, 1.05), client.client.socket.fileno()))
        if frame is None:
            return
        self._went_back += client.version is not None and frame.version <= client.version
        self._in_part += not is_whole(frame)
        # A client that skips a version counts with the newer one.
        for updates in range((client.version or (LINEAGE, 0))[1] + 1, frame.updates + 1):
            self._held_at.setdefault(updates, []).append(now)
        client.version = frame.version

    def result(self) -> Line:
        malformed = sum(client.client.num_malformed for client in self._by_descriptor.values())
        return {"held_at": self._held_at, "went_back": self._went_back, "in_part": self._in_part, "malformed": malformed}


class Publisher:
    """The publishers of the learner's shards."""

    def __init__(self, settings: RunSettings, endpoint: str, version_bytes: int) -> None:
        contract, context = contract_digest(settings, environment_spec(settings.env)), Context(settings.security)
        # Incompressible data.
        self._fillings = [os.urandom(size) for size in shares(version_bytes, settings.learner.shards)]
        self._publishers = [WeightsPublisher(context, endpoint, run_id=settings.name, contract=contract) for _ in self._fillings]
        self.published_at: dict[int, float] = {}
        self.visible_at: dict[int, float] = {}
        """When the publishers knew that the root has the complete version."""

    def publish(self, updates: int) -> None:
        """Publish a version with marked slices."""
        slices = [marked((LINEAGE, updates), index, filling) for index, filling in enumerate(self._fillings)]
        self.published_at[updates] = time.monotonic()
        for index, (publisher, payload) in enumerate(zip(self._publishers, slices, strict=True)):
            publisher.publish(LINEAGE, updates, index, len(slices), payload)

    def poll(self) -> None:
        """Handle answers and send what is due."""
        for publisher in self._publishers:
            publisher.poll()
            if publisher.refused is not None:
                raise RuntimeError(f"the root refuses the publisher: {publisher.refused}")
        if self.published_at and all(publisher.confirmed for publisher in self._publishers):
            self.visible_at.setdefault(max(self.published_at), time.monotonic())


class Server:
    """One ``herd_paramserver``."""

    def __init__(self, settings: RunSettings, directory: Path, started: ExitStack, *, index: int, upstream: str | None) -> None:
        host = settings.placement.host
        port = started.enter_context(held_ports({"paramserver": (host, 0)}))["paramserver"]
        addresses = {} if upstream is None else {"paramserver": (upstream,)}
        identity = Identity(index=index, listen=Endpoint(host, port), addresses=addresses)
        config = directory / f"paramserver-{index}.yaml"
        config.write_text(dump_settings(settings.model_copy(update={"run_dir": directory})))
        self.endpoint = tcp_address(local_host(host), port)
        self.child = started.enter_context(Child("herd_paramserver", "--config", config, *identity.words()))
        announcement = directory / "processes" / f"paramserver-{index}.json"
        while not announcement.exists():
            wait(0.02, self.child.check)
        self.metrics = f"http://127.0.0.1:{json.loads(announcement.read_text())['metrics_port']}/metrics"

    def read(self) -> dict[str, float]:
        samples = scrape(self.metrics, timeout=10.0)
        return {
            "cpu_seconds": self.child.cpu_seconds(),
            "weights": total(samples, "herd_paramserver_answers_total", answer="weights"),
            "not_modified": total(samples, "herd_paramserver_answers_total", answer="not_modified"),
            "requests": total(samples, "herd_paramserver_requests_total", kind="get_weights"),
            "bytes_out": total(samples, "herd_wire_sent_bytes_total"),
        }


def weights_bytes(settings: RunSettings) -> int:
    """Return the size of one published version, without its headers of about 1 kB."""
    import torch  # noqa: PLC0415  the processes of clients do without

    from herd.agent import build_agent  # noqa: PLC0415

    with torch.device("meta"):
        agent = build_agent(settings, environment_spec(settings.env))
    parameters = sum(parameter.numel() for parameter in agent.parameters())
    return parameters * {"float32": 4, "bfloat16": 2}[settings.learner.weights_dtype]


def measure(settings: RunSettings, options: argparse.Namespace) -> dict[str, Any]:
    """Publish weights through real servers to simulated clients; return the report, ready for JSON."""
    allow_connections(options.actors, servers=max(1, options.replicas), processes=options.processes)
    version_bytes = weights_bytes(settings)
    with tempfile.TemporaryDirectory(prefix="herd-fan-out-") as directory, ExitStack() as started:
        config = Path(directory) / "config.yaml"
        config.write_text(dump_settings(settings))
        servers = [Server(settings, Path(directory), started, index=0, upstream=None)]
        servers += [
            Server(settings, Path(directory), started, index=index, upstream=servers[0].endpoint)
            for index in range(1, options.replicas + 1)
        ]
        asked = servers[1:] or servers
        crowds = [
            started.enter_context(
                Child(
                    "benchmarks.fan_out", "clients", config, count, options.ask_seconds, concurrent, seed, *(one.endpoint for one in asked)
                )
            )
            for seed, (count, concurrent) in enumerate(
                zip(shares(options.actors, options.processes), shares(options.concurrent, options.processes), strict=True)
            )
        ]
        for crowd in crowds:
            crowd.hear()
        publisher = Publisher(settings, servers[0].endpoint, version_bytes)

        def read() -> dict[str, float]:
            """Read the counters of the servers that clients use, summed."""
            readings = [server.read() for server in asked]
            sums = {name: sum(reading[name] for reading in readings) for name in readings[0]}
            return {**sums, "at": time.monotonic(), "clients_cpu_seconds": sum(crowd.cpu_seconds() for crowd in crowds)}

        def until_held(updates: int) -> None:
            deadline = time.monotonic() + options.timeout_seconds
            while sum(len(crowd.ask("result")["held_at"].get(str(updates), [])) for crowd in crowds) < options.actors:
                wait(0.2, publisher.poll, *(server.child.check for server in servers))
                if time.monotonic() > deadline:
                    raise RuntimeError(f"not all clients have version {updates} after {options.timeout_seconds:g} s")

        nobody = read()
        wait(IDLE_SECONDS)
        idle = _difference(nobody, read())
        for crowd in crowds:
            crowd.ask("start")
        publisher.publish(1)
        until_held(1)
        busy_cores()
        began = read()
        wait(options.seconds, publisher.poll)
        between, busy_quiet = read(), busy_cores()
        for updates in range(2, 2 + options.versions):
            publisher.publish(updates)
            wait(options.interval_seconds if updates <= options.versions else 0.0, publisher.poll)
        until_held(1 + options.versions)
        ended, busy = read(), busy_cores()
        results = [crowd.ask("result") for crowd in crowds]
        each = [{**server.read(), "resident_bytes": server.child.resident_bytes()} for server in servers]
    quiet, publishing = _difference(began, between), _difference(between, ended)
    idle_cores = idle["cpu_seconds"] / idle["at"]
    per_not_modified = 1e6 * _on_clients(quiet, idle_cores) / max(1.0, quiet["not_modified"])
    # The remaining cost while versions are sent, after the cost of all 'not modified' answers is subtracted.
    left = max(0.0, 1e6 * _on_clients(publishing, idle_cores) - per_not_modified * publishing["not_modified"])
    return {
        "actors": options.actors,
        "version_bytes": version_bytes,
        "versions": [_delays(publisher, results, updates) for updates in range(2, 2 + options.versions)],
        "quiet": _rates(quiet, busy_quiet),
        "publishing": _rates(publishing, busy),
        "cpu_microseconds_per_not_modified": per_not_modified,
        "cpu_microseconds_per_weights": left / max(1.0, publishing["weights"]),
        "servers": each,
        "clients": {name: sum(result[name] for result in results) for name in ("went_back", "in_part", "malformed")},
        **circumstances(settings, options),
    }


def _difference(start: dict[str, float], end: dict[str, float]) -> dict[str, float]:
    return {name: value - start[name] for name, value in end.items()}


def _on_clients(phase: dict[str, float], idle_cores: float) -> float:
    """Return the processor seconds beyond those that servers use without clients."""
    return max(0.0, phase["cpu_seconds"] - idle_cores * phase["at"])


def _rates(phase: dict[str, float], busy: float) -> dict[str, float]:
    seconds = phase["at"]
    return {
        "seconds": seconds,
        **{f"{name}_per_second": phase[name] / seconds for name in ("requests", "weights", "not_modified", "bytes_out")},
        "servers_cores": phase["cpu_seconds"] / seconds,
        "clients_cores": phase["clients_cpu_seconds"] / seconds,
        "busy_cores": busy,
    }


def _delays(publisher: Publisher, results: list[Line], updates: int) -> dict[str, Any]:
    """Return the delays from publishing a version until clients have it or a newer one."""
    published = publisher.published_at[updates]
    seconds = sorted(moment - published for result in results for moment in result["held_at"][str(updates)])
    return {
        "updates": updates,
        "clients": len(seconds),
        "root_seconds": publisher.visible_at[updates] - published if updates in publisher.visible_at else None,
        "median_seconds": statistics.median(seconds),
        "p99_seconds": seconds[int(0.99 * (len(seconds) - 1))],
        "worst_seconds": seconds[-1],
    }


def main(words: list[str]) -> None:
    """Measure and print, or run as one of the measurement's processes."""
    match words:
        case ["clients", config, count, ask_seconds, concurrent, seed, *endpoints]:
            settings = load_settings([Path(config)], [], {})
            clients = Clients(
                settings, endpoints, count=int(count), ask_seconds=float(ask_seconds), concurrent=int(concurrent), seed=int(seed)
            )
            say({"ready": count})
            serve(clients.turn, {"start": clients.start, "result": clients.result})
        case _:
            options, rest = parser().parse_known_args(words)
            print(json.dumps(measure(settings_of("fan-out", rest), options)))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options; the remaining words are a run file and settings."""
    found = argparse.ArgumentParser(
        prog="benchmarks.fan_out", usage="%(prog)s [options] [FILE] [--section.key value ...]", description=__doc__, allow_abbrev=False
    )
    found.add_argument("--actors", type=int, default=5000, help="each with a connection of its own (default: %(default)s)")
    found.add_argument("--replicas", type=int, default=2, help="that they ask; 0: they ask the root (default: %(default)s)")
    found.add_argument("--versions", type=int, default=3, help="published and measured (default: %(default)s)")
    found.add_argument("--interval-seconds", type=float, default=30.0, help="between versions (default: %(default)s)")
    found.add_argument("--ask-seconds", type=float, default=1.6, help="between questions of a client (default: %(default)s)")
    found.add_argument("--seconds", type=float, default=10.0, help="measured while nothing is published (default: %(default)s)")
    found.add_argument("--concurrent", type=int, default=64, help="requests under way at a time (default: %(default)s)")
    found.add_argument("--timeout-seconds", type=float, default=600.0, help="in which all must have a version (default: %(default)s)")
    found.add_argument("--processes", type=int, default=2, help="that simulate actors (default: %(default)s)")
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
