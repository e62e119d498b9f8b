"""Measures how many unrolls one learner can receive from thousands of actors, and what each costs: ``python -m benchmarks.fan_in``.

Simulated actors, each a real client with its own connection, send synthetic unrolls to the learner's real I/O thread, queue and ledger.
Instead of training, a consumer takes batches at a given rate and checks the order of each actor's unrolls: their ``episode_id`` counts 0,
1, 2, ... Some connections are broken on purpose; nothing may be lost or accepted twice. It prints one JSON
object. 3,125 unrolls of 20 agent steps are 250,000 env frames.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from herd_learner.intake.io_thread import IntakeMeters, IoThread
from herd_learner.intake.ledger import Ledger
from herd_learner.intake.queue import UnrollQueue

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
from benchmarks.machine.synthetic import synthetic_unrolls
from herd.components.suites import environment_spec
from herd.config.addresses import local_host, tcp_address
from herd.config.loading import dump_settings, load_settings
from herd.config.run_contract import contract_digest, run_layout
from herd.launch.plan import held_ports
from herd.protocols.unrolls.client import UnrollClient
from herd.service.identity import Endpoint, Identity
from herd.telemetry.scrape import scrape, total
from herd.telemetry.telemetry import Telemetry
from herd.transport.context import Context

if TYPE_CHECKING:
    from herd.config.run import RunSettings

WARMUP_SECONDS = 2.0
FINISH_SECONDS = 120.0
"""Time for what is under way when the measurement ends; repeated requests and reconnections may take tens of seconds."""
METER_SECONDS = 1.25
"""The receiver counts its sockets' bytes once a second, and an iteration of its loop takes a quarter."""
SWEEP_SECONDS = 0.5
"""Interval of checks of an actor that receives nothing: half of its delay before it repeats a request."""
MAX_UNACKED = 2
"""Number of messages of one actor under way: one set of buffers is sent while the other is filled."""
BREAK_SECONDS = 0.2
"""Pause between broken connections, so that each breaks at a different moment."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Actor:
    """Requests credit and sends for as long as it may. All actors send the same arrays, except for ``episode_id``."""

    def __init__(self, client: UnrollClient, arrays: dict[str, Any], num_frames: int) -> None:
        self.client = client
        self.num_unrolls = 0
        """Number of unrolls handed over for sending."""
        self.is_sending = self.is_closed = False
        self._arrays = arrays
        self._unrolls = len(arrays["episode_id"])
        self._num_frames = num_frames

    def turn(self) -> None:
        """Do everything that is possible now. A socket's descriptor signals once for many messages, and sending may consume the signal, so
        read last."""
        before = -1
        while self.client.socket.bytes_in != before and not self.is_closed:
            before = self.client.socket.bytes_in
            while self.is_sending and self.client.num_unacked < MAX_UNACKED:
                if not self.client.has_credit(self._unrolls):
                    self.client.request_credit(self._unrolls)
                    break
                numbers = np.arange(self.num_unrolls, self.num_unrolls + self._unrolls, dtype=np.int64)
                self.client.send_unrolls({**self._arrays, "episode_id": numbers}, num_frames=self._num_frames)
                self.num_unrolls += self._unrolls
            self.client.poll()


class Crowd:
    """All actors of this process, in one thread."""

    def __init__(self, settings: RunSettings, *, first: int, count: int, breaks: int) -> None:
        spec = environment_spec(settings.env)
        layout = run_layout(settings, spec)
        unrolls = settings.actor.environments
        arrays = synthetic_unrolls(layout, unrolls, seed=settings.seed)
        self._address = tcp_address(local_host(settings.placement.host), settings.placement.ports["learner"])
        self._epoll = select.epoll()
        self._by_descriptor: dict[int, Actor] = {}
        for place in range(count):
            if place % CLIENTS_PER_CONTEXT == 0:
                context = Context(settings.security)
            client = UnrollClient(
                context,
                self._address,
                layout=layout,
                run_id=settings.name,
                contract=contract_digest(settings, spec),
                actor_index=first + place,
                max_unrolls=unrolls,
                compression=settings.actor.compression,
            )
            self._watch(Actor(client, arrays, unrolls * layout.new_steps * spec.action_repeat))
        self._actors = deque(self._by_descriptor.values())
        self._to_break = set(random.Random(settings.seed + first).sample(list(self._actors), breaks))
        self._break_at = 0.0
        self._swept_at = time.monotonic()

    def turn(self) -> None:
        """Handle the actors that have answers, and some of the others."""
        for descriptor, _ in self._epoll.poll(POLL_SECONDS):
            actor = self._by_descriptor.get(descriptor)
            if actor is None:
                continue
            actor.turn()
            if actor in self._to_break and actor.client.num_unacked and time.monotonic() >= self._break_at:
                self._break(actor)
        now = time.monotonic()
        due = min(int(len(self._actors) * (now - self._swept_at) / SWEEP_SECONDS), len(self._actors))
        if due:
            self._swept_at = now
        for _ in range(due):
            self._actors[0].turn()
            self._actors.rotate(-1)

    def send(self) -> Line:
        for actor in self._actors:
            actor.is_sending = True
            actor.turn()
        return {}

    def stop(self) -> Line:
        """Start no further messages."""
        for actor in self._actors:
            actor.is_sending = False
        return {}

    def result(self) -> Line:
        """Return what was sent. A finished actor sends a goodbye, so that its credit goes to those that must send again."""
        for actor in self._actors:
            if not actor.is_sending and not actor.is_closed and not actor.client.num_unacked:
                self._unwatch(actor)
                actor.client.close()
                actor.is_closed = True
        clients = [actor.client for actor in self._actors]
        return {
            "is_done": all(actor.is_closed for actor in self._actors),
            "unrolls": sum(actor.num_unrolls for actor in self._actors),
            "frames": sum(client.generated_frames for client in clients),
            "resent": sum(client.num_unrolls_resent for client in clients),
            "sessions": sum(client.num_sessions for client in clients),
            "rejected": sum(client.num_rejected for client in clients),
        }

    def _watch(self, actor: Actor) -> None:
        self._by_descriptor[actor.client.socket.fileno()] = actor
        self._epoll.register(actor.client.socket.fileno(), select.EPOLLIN)

    def _unwatch(self, actor: Actor) -> None:
        self._epoll.unregister(actor.client.socket.fileno())
        del self._by_descriptor[actor.client.socket.fileno()]

    def _break(self, actor: Actor) -> None:
        """Break a connection that has messages under way; they are sent again."""
        self._to_break.remove(actor)
        self._break_at = time.monotonic() + BREAK_SECONDS
        connection: Any = actor.client.socket.waitable  # ZeroMQ's own
        connection.disconnect(self._address)
        connection.connect(self._address)


class Receiver:
    """The learner's side, with a consumer instead of an update."""

    def __init__(self, settings: RunSettings, unrolls_per_second: float) -> None:
        spec = environment_spec(settings.env)
        layout = run_layout(settings, spec)
        self._ledger, self._queue = Ledger(), UnrollQueue()
        telemetry = Telemetry("learner", settings.name)
        contract = contract_digest(settings, spec)
        context = Context(settings.security)
        listen = Endpoint(settings.placement.host, settings.placement.ports["learner"])
        self.io = IoThread(
            context,
            settings,
            Identity(listen=listen, addresses={"paramserver": ("tcp://127.0.0.1:7200",)}),
            contract=contract,
            layout=layout,
            spec=spec,
            ledger=self._ledger,
            queue=self._queue,
            meters=IntakeMeters(telemetry, self._ledger, self._queue),
        )
        self.metrics_port = telemetry.serve("127.0.0.1", 0)
        self._batch_size = settings.num_online_unrolls
        self._interval = self._batch_size / unrolls_per_second
        self._due = time.monotonic()
        self._is_draining = False
        self._next: Counter[tuple[int, int]] = Counter()
        self._out_of_order = self._consumed = self._most_queued = 0

    def turn(self) -> None:
        """Take a batch if it is due and there is one."""
        if self.io.failure is not None:
            raise RuntimeError("the I/O thread died") from self.io.failure
        self._most_queued = max(self._most_queued, len(self._queue))
        early = self._due - time.monotonic()
        if early > 0 and not self._is_draining:
            time.sleep(min(early, POLL_SECONDS))
            return
        wanted = min(self._batch_size, max(1, len(self._queue))) if self._is_draining else self._batch_size
        unrolls, _ = self._queue.take(wanted, lambda _: False, POLL_SECONDS)
        if not unrolls:
            return
        # A late consumer catches up by at most half a second, because a learner could not catch up either.
        self._due = max(self._due + self._interval, time.monotonic() - 0.5)
        for unroll in unrolls:
            self._out_of_order += int(unroll.arrays["episode_id"][unroll.row]) != self._next[unroll.actor]
            self._next[unroll.actor] += 1
            self._ledger.consume({unroll.task_id: unroll.num_frames})
        self._consumed += len(unrolls)
        self.io.grant_again(len(unrolls))

    def drain(self) -> Line:
        """From now on, take everything at once."""
        self._is_draining = True
        return {}

    def status(self) -> Line:
        ledger = self._ledger.totals()
        return {
            "at": time.monotonic(),
            "cpu_seconds": time.process_time(),
            "threads": thread_cpu_seconds(),
            "consumed": self._consumed,
            "out_of_order": self._out_of_order,
            "frames": {**ledger.as_json(), "balanced": ledger.is_balanced},
            "most_queued": self._most_queued,
        }


def thread_cpu_seconds() -> dict[str, float]:
    """Return the processor time of the I/O thread, of ZeroMQ's threads, and of the consumer (the main thread), to a hundredth of a
    second."""
    io_thread = next((thread.native_id for thread in threading.enumerate() if thread.name == "learner-io"), None)
    seconds = dict.fromkeys(("io_thread", "zeromq", "consumer"), 0.0)
    for task in Path("/proc/self/task").iterdir():
        try:
            name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # the thread has ended
        kinds = {str(io_thread): "io_thread", str(os.getpid()): "consumer"}
        kind = kinds.get(task.name, "zeromq" if name.startswith("ZMQbg") else None)
        if kind is not None:
            seconds[kind] += sum(map(int, rest.split()[11:13])) / TICKS_PER_SECOND
    return seconds


def finished(crowds: list[Child], deadline: float) -> list[Line]:
    """Return the crowds' results when all are done, or at ``deadline``.

    Every crowd is asked each time, because the finished actors of one may hold the credit that another's need.
    """
    while True:
        results = [crowd.ask("result") for crowd in crowds]
        if all(result["is_done"] for result in results) or time.monotonic() >= deadline:
            return results
        wait(0.1)


def measure(settings: RunSettings, options: argparse.Namespace) -> dict[str, Any]:
    """Run simulated actors against the real ingest; return the report, ready for JSON."""
    allow_connections(options.actors, servers=1, processes=options.processes)
    with held_ports({"learner": (settings.placement.host, 0)}) as ports:
        return measure_at(settings, options, ports["learner"])


def measure_at(settings: RunSettings, options: argparse.Namespace, port: int) -> dict[str, Any]:
    """Run them, with the ingest at ``port``."""
    settings = settings.model_copy(update={"placement": settings.placement.model_copy(update={"ports": {"learner": port}})})
    with tempfile.TemporaryDirectory(prefix="herd-fan-in-") as directory, ExitStack() as started:
        config = Path(directory) / "config.yaml"
        config.write_text(dump_settings(settings))
        receiver = started.enter_context(Child("benchmarks.fan_in", "receiver", config, options.unrolls_per_second))
        metrics = f"http://127.0.0.1:{receiver.hear()['metrics_port']}/metrics"
        first, crowds = 0, []
        for count, breaks in zip(shares(options.actors, options.processes), shares(options.breaks, options.processes), strict=True):
            crowds.append(started.enter_context(Child("benchmarks.fan_in", "actors", config, first, count, breaks)))
            first += count
        for crowd in crowds:
            crowd.hear()
        began = time.monotonic()
        while total(scrape(metrics), "herd_learner_connected_actors") < options.actors:
            wait(0.05, receiver.check, *(crowd.check for crowd in crowds))
        hello_seconds, connected_bytes = time.monotonic() - began, receiver.resident_bytes()
        for crowd in crowds:
            crowd.ask("send")
        wait(WARMUP_SECONDS)
        start, start_spent, _ = receiver.ask("status"), sum(crowd.cpu_seconds() for crowd in crowds), busy_cores()
        wait(options.seconds)
        end, end_spent, busy = receiver.ask("status"), sum(crowd.cpu_seconds() for crowd in crowds), busy_cores()
        for crowd in crowds:
            crowd.ask("stop")
        deadline = time.monotonic() + FINISH_SECONDS
        results = finished(crowds, deadline)
        sent = {name: sum(result[name] for result in results) for name in results[0]}
        receiver.ask("drain")
        while (last := receiver.ask("status"))["consumed"] < sent["unrolls"] and time.monotonic() < deadline:
            wait(0.05)
        wait(METER_SECONDS)
        samples, after_bytes = scrape(metrics), receiver.resident_bytes()
    seconds, consumed = end["at"] - start["at"], end["consumed"] - start["consumed"]
    layout = run_layout(settings, environment_spec(settings.env))
    threads = {name: 1e6 * (spent - start["threads"][name]) / max(1, consumed) for name, spent in end["threads"].items()}
    cores, actors_cores = (end["cpu_seconds"] - start["cpu_seconds"]) / seconds, (end_spent - start_spent) / seconds
    frames = last["frames"]
    return {
        "actors": options.actors,
        "unrolls_per_message": settings.actor.environments,
        "hello_seconds": hello_seconds,
        "seconds": seconds,
        "unrolls_per_second": consumed / seconds,
        "frames_per_second": consumed / seconds * layout.new_steps * settings.env.action_repeat,
        "bytes_per_unroll": total(samples, "herd_wire_received_bytes_total", stream="unrolls") / max(1, last["consumed"]),
        "receiver": {
            "cpu_microseconds_per_unroll": 1e6 * cores * seconds / max(1, consumed),
            "thread_cpu_microseconds_per_unroll": threads,
            "cores": cores,
            "connected_bytes": connected_bytes,
            "after_bytes": after_bytes,
            "queue_bytes": last["most_queued"] * layout.bytes_per_unroll,
            "queue_bound_bytes": settings.credit_capacity * layout.bytes_per_unroll,
        },
        "actors_cores": actors_cores,
        "busy_cores_of_other_programs": max(0.0, busy - cores - actors_cores),
        "loss": {
            "is_exact": (
                (sent["unrolls"], 0, sent["frames"]) == (last["consumed"], last["out_of_order"], frames["consumed"])
                and frames["balanced"]
                and sent["is_done"] == len(crowds)
            ),
            "unrolls_sent": sent["unrolls"],
            "unrolls_consumed": last["consumed"],
            "unrolls_out_of_order": last["out_of_order"],
            "unrolls_resent": sent["resent"],
            "unrolls_rejected": sent["rejected"],
            "connections_broken": sent["sessions"] - options.actors,
            "frames": frames,
        },
        **circumstances(settings, options),
    }


def main(words: list[str]) -> None:
    """Measure and print, or run as one of the measurement's processes."""
    match words:
        case ["receiver", config, rate]:
            receiver = Receiver(load_settings([Path(config)], [], {}), float(rate))
            receiver.io.start()
            say({"metrics_port": receiver.metrics_port})
            serve(receiver.turn, {"status": receiver.status, "drain": receiver.drain})
            receiver.io.close()
        case ["actors", config, *numbers]:
            first, count, breaks = map(int, numbers)
            crowd = Crowd(load_settings([Path(config)], [], {}), first=first, count=count, breaks=breaks)
            say({"ready": count})
            serve(crowd.turn, {"send": crowd.send, "stop": crowd.stop, "result": crowd.result})
        case _:
            options, rest = parser().parse_known_args(words)
            settings = settings_of("fan-in", rest, "--actor.environments", str(options.unrolls_per_message))
            print(json.dumps(measure(settings, options)))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options; the remaining words are a run file and settings."""
    found = argparse.ArgumentParser(
        prog="benchmarks.fan_in", usage="%(prog)s [options] [FILE] [--section.key value ...]", description=__doc__, allow_abbrev=False
    )
    found.add_argument("--actors", type=int, default=5000, help="each with a connection of its own (default: %(default)s)")
    found.add_argument("--seconds", type=float, default=20.0, help="measured (default: %(default)s)")
    found.add_argument("--unrolls-per-second", type=float, default=3125.0, help="taken at most; inf: all it can (default: %(default)s)")
    found.add_argument("--unrolls-per-message", type=int, default=1, help="1 is the most work per unroll (default: %(default)s)")
    found.add_argument("--breaks", type=int, default=50, help="connections that are broken meanwhile (default: %(default)s)")
    found.add_argument("--processes", type=int, default=2, help="that simulate actors (default: %(default)s)")
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
