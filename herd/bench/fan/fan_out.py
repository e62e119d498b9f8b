"""``herd bench fan-out``: how long a new version of the weights takes to reach thousands of clients, and what it costs."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from herd.bench.fan.busy import busy_cores
from herd.bench.fan.child import Child
from herd.bench.fan.fan_out_report import FanOutReadings, Phase, make_fan_out_report
from herd.bench.fan.limits import LimitError, check_servers, client_processes, raise_limit, shares
from herd.bench.fan.pullers import marked
from herd.bench.fan.server_tree import level_sizes, start_tree
from herd.bench.hardware import describe_hardware
from herd.bench.stages import StageError
from herd.bench.weights_size import num_parameters, weights_bytes
from herd.config.contract import contract_digest
from herd.config.loading import dump_settings
from herd.envs.make import environment_spec
from herd.wire.sockets import new_context
from herd.wire.weights_client import WeightsPublisher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herd.bench.fan.server_tree import Server
    from herd.config.settings import RunSettings

    Advance = Callable[[str, float], None]
    """Told what goes on and how far it is, 0 to 1."""

START_SECONDS = 120.0
"""Imports and thousands of connections, on a busy machine."""
ANSWER_SECONDS = 30.0
POLL_SECONDS = 0.01
"""Between looks at the publishers' answers."""
LOOK_SECONDS = 0.5
IDLE_SECONDS = 2.0
"""To see what servers cost without clients."""
LINEAGE = 1
MEMORY_SHARE = 4
"""Answers under way may take this part of the machine's free memory."""


@dataclass(frozen=True, slots=True)
class FanOutOptions:
    """What is measured."""

    actors: int
    replicas: int = 2
    depth: int = 1
    """Levels of replicas below the root."""
    versions: int = 3
    """Published, one after the other, after a first one that everybody has before anything is measured."""
    interval_seconds: float = 30.0
    """Between them."""
    ask_seconds: float = 1.6
    """Between a client's questions."""
    seconds: float = 10.0
    """In which nothing is published: what 'not modified' costs."""
    concurrent: int = 64
    """Requests under way at a time, over all clients."""
    processes: int | None = None
    timeout_seconds: float = 600.0
    """In which every client must have the last version."""


def measure_fan_out(settings: RunSettings, options: FanOutOptions, *, advance: Advance) -> dict[str, object]:
    """Publish weights through a tree of parameter servers to simulated clients; the report, ready for JSON.

    Raises:
        LimitError: too many clients for this machine's open files or memory.
        StageError: a process failed, or something took longer than it can.

    """
    limit = raise_limit()
    servers_of_clients = max(1, options.replicas)
    check_servers(-(-options.actors // servers_of_clients), limit, option="--actors")
    num_processes = client_processes(options.actors, limit, options.processes)
    hardware = describe_hardware()
    size = weights_bytes(settings, num_parameters(settings))
    check_memory(size, options)
    with tempfile.TemporaryDirectory(prefix="herd-fan-out-") as directory, ExitStack() as started:
        config = Path(directory) / "config.yaml"
        config.write_text(dump_settings(settings))
        advance("starting the parameter servers", 0.0)
        servers = start_tree(settings, Path(directory), started, replicas=options.replicas, depth=options.depth)
        lowest = [server.endpoint for server in servers if server.level == max(server.level for server in servers)]
        advance("connecting the clients", 0.0)
        crowds = [
            started.enter_context(Child("clients", _clients_command(config, options, lowest, count=count, share=share, seed=seed)))
            for seed, (count, share) in enumerate(
                zip(shares(options.actors, num_processes), shares(max(options.concurrent, num_processes), num_processes), strict=True)
            )
        ]
        for crowd in crowds:
            crowd.receive(START_SECONDS)
        publisher = started.enter_context(closing(Publisher(settings, servers[0].endpoint, size)))
        readings = _Measurement(servers, crowds, publisher, options, advance).readings()
    levels = [1, *level_sizes(options.replicas, options.depth)]
    return make_fan_out_report(settings, options, readings, hardware, version_bytes=size, levels=levels, num_processes=num_processes)


def check_memory(version_bytes: int, options: FanOutOptions) -> None:
    """Check that the answers under way fit in memory: once at the clients, once on their way through the kernel.

    Raises:
        LimitError: they do not.

    """
    needed, free = 2 * options.concurrent * version_bytes, psutil.virtual_memory().available // MEMORY_SHARE
    if needed > free:
        most = free // (2 * version_bytes)
        raise LimitError(
            f"--concurrent: {options.concurrent} answers of {version_bytes / 2**20:.1f} MiB under way would take {needed / 2**30:.1f} GiB "
            f"of this machine's memory: take {most} at most"
        )


class Publisher:
    """The learner's shards, as far as weights go: a publisher each."""

    def __init__(self, settings: RunSettings, endpoint: str, version_bytes: int) -> None:
        contract = contract_digest(settings, environment_spec(settings.env))
        self.published_at: dict[int, float] = {}
        """By updates, in monotonic seconds."""
        self.visible_at: dict[int, float] = {}
        """When the publishers knew that the root has it all."""
        self._context = new_context(settings.security)
        self._sizes = shares(version_bytes, settings.learner.shards)
        # Nothing that a network or a compressor could make smaller.
        self._filling = os.urandom(max(self._sizes))
        self._publishers = [
            WeightsPublisher(self._context, endpoint, run_id=settings.name, contract=contract) for _ in range(settings.learner.shards)
        ]

    def publish(self, updates: int) -> None:
        """Publish a version; its slices say which one they are of."""
        slices = [marked((LINEAGE, updates), index, size, self._filling) for index, size in enumerate(self._sizes)]
        self.published_at[updates] = time.monotonic()
        for index, (publisher, payload) in enumerate(zip(self._publishers, slices, strict=True)):
            publisher.publish(LINEAGE, updates, index, len(slices), payload)

    def poll(self) -> None:
        """Handle answers, send what is due.

        Raises:
            StageError: the root refuses it.

        """
        for publisher in self._publishers:
            publisher.poll()
            if publisher.refused is not None:
                raise StageError(f"fan-out: the root refuses the publisher: {publisher.refused}")
        if self.published_at and all(publisher.confirmed for publisher in self._publishers):
            self.visible_at.setdefault(max(self.published_at), time.monotonic())

    def close(self) -> None:
        """Close at once."""
        for publisher in self._publishers:
            publisher.close()
        self._context.destroy()


class _Measurement:
    """Runs the phases, with all processes at hand."""

    def __init__(
        self, servers: Sequence[Server], crowds: Sequence[Child], publisher: Publisher, options: FanOutOptions, advance: Advance
    ) -> None:
        self._servers = servers
        self._crowds = crowds
        self._publisher = publisher
        self._options = options
        self._advance = advance
        self._client_processes = [psutil.Process(crowd.pid) for crowd in crowds]

    def readings(self) -> FanOutReadings:
        idle_start = self._phase()
        self._wait(IDLE_SECONDS, "nobody asks")
        idle_end = self._phase()
        for crowd in self._crowds:
            crowd.send("start")
        self._publisher.publish(1)
        self._until_held(1, "first version")
        busy_cores()
        quiet_start = self._phase()
        self._wait(self._options.seconds, "nothing is published")
        quiet_end = self._phase()
        quiet_busy = busy_cores()
        first_at = time.monotonic()
        for number in range(self._options.versions):
            due = first_at + number * self._options.interval_seconds
            self._wait(max(0.0, due - time.monotonic()), f"version {number} of {self._options.versions}")
            self._publisher.publish(2 + number)
        self._until_held(1 + self._options.versions, "last version")
        published = self._phase()
        published_busy = busy_cores()
        results = [crowd.ask("result", timeout_seconds=ANSWER_SECONDS) for crowd in self._crowds]
        return FanOutReadings(
            idle=(idle_start, idle_end),
            quiet=(quiet_start, quiet_end),
            publishing=(quiet_end, published),
            names=tuple((server.name, server.level) for server in self._servers),
            clients=tuple(results),
            published_at=dict(self._publisher.published_at),
            visible_at=dict(self._publisher.visible_at),
            busy_cores=(quiet_busy, published_busy),
        )

    def _phase(self) -> Phase:
        times = [process.cpu_times() for process in self._client_processes]
        return Phase(
            at=time.monotonic(),
            servers=tuple(server.read() for server in self._servers),
            clients_cpu_seconds=sum(spent.user + spent.system for spent in times),
        )

    def _wait(self, seconds: float, what: str) -> None:
        began = time.monotonic()
        look_at = began
        while (elapsed := time.monotonic() - began) < seconds:
            self._publisher.poll()
            time.sleep(min(POLL_SECONDS, seconds - elapsed))
            if time.monotonic() >= look_at:
                look_at += LOOK_SECONDS
                self._advance(what, elapsed / seconds)

    def _until_held(self, updates: int, what: str) -> None:
        """Until every client has this version."""
        deadline = time.monotonic() + self._options.timeout_seconds
        look_at = 0.0
        while True:
            self._publisher.poll()
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_SECONDS
                holding = sum(self._holding(crowd, updates) for crowd in self._crowds)
                self._advance(f"{what}: {holding:,} clients have it", holding / self._options.actors)
                if holding == self._options.actors:
                    return
                for server in self._servers:
                    server.child.check()
                if time.monotonic() > deadline:
                    held = f"{holding} of {self._options.actors} clients have the {what}"
                    raise StageError(f"fan-out: {held} after {self._options.timeout_seconds:g} s")
            time.sleep(POLL_SECONDS)

    @staticmethod
    def _holding(crowd: Child, updates: int) -> int:
        held: dict[str, Any] = crowd.ask("count", timeout_seconds=ANSWER_SECONDS)["held"]
        return sum(clients for version, clients in held.items() if int(version) >= updates)


def _clients_command(config: Path, options: FanOutOptions, endpoints: Sequence[str], *, count: int, share: int, seed: int) -> list[str]:
    words = ["--config", str(config), "--count", str(count), "--ask-seconds", str(options.ask_seconds)]
    words += ["--concurrent", str(share), "--seed", str(seed)]
    for endpoint in endpoints:
        words += ["--endpoint", endpoint]
    return [sys.executable, "-m", "herd.bench.fan.pullers", *words]
