"""``herd bench fan-in``: how many unrolls one learner takes in from thousands of actors, and what it costs."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from herd.bench.fan.busy import busy_cores
from herd.bench.fan.child import Child
from herd.bench.fan.fan_in_report import FanInReadings, Reading, make_fan_in_report
from herd.bench.fan.limits import check_servers, client_processes, raise_limit, shares
from herd.bench.hardware import describe_hardware
from herd.bench.stages import StageError
from herd.config.loading import dump_settings
from herd.supervisor.ports import choose_ports, local_address
from herd.telemetry.scrape import ScrapeError, scrape, total

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herd.config.settings import RunSettings

    Advance = Callable[[str, float], None]
    """Told what goes on and how far it is, 0 to 1."""

START_SECONDS = 60.0
"""Imports, on a busy machine."""
CONNECT_SECONDS = 180.0
"""Until everybody has said hello: 5,000 connections, retried after seconds where the kernel's queue was full."""
ANSWER_SECONDS = 30.0
"""The receiver answers between two batches; a client process after turning to each of its actors."""
FINISH_SECONDS = 120.0
"""For what is under way when the measurement ends; repeated questions and reconnections may take tens of seconds."""
WARMUP_SECONDS = 2.0
LOOK_SECONDS = 0.5
METER_SECONDS = 1.25
"""The receiver counts its sockets' bytes once a second, and a turn of its loop takes a quarter."""


@dataclass(frozen=True, slots=True)
class FanInOptions:
    """What is measured."""

    actors: int
    seconds: float
    unrolls_per_second: float
    """That the consumer takes at most; infinity for all it can."""
    paced: bool = False
    """Actors play so that all together they have ``unrolls_per_second`` ready; without, they always have some ready, and wait."""
    unrolls_per_message: int = 1
    messages_per_actor: int | None = None
    """Each actor sends so many and the measurement ends with the last, instead of after ``seconds``."""
    breaks: int = 0
    """Connections that are broken meanwhile."""
    processes: int | None = None

    @property
    def interval_seconds(self) -> float | None:
        """That an actor takes to play a message; None for no time at all."""
        return self.actors * self.unrolls_per_message / self.unrolls_per_second if self.paced else None


def measure_fan_in(settings: RunSettings, options: FanInOptions, *, advance: Advance) -> dict[str, object]:
    """Run simulated actors against the learner's real ingest; the report, ready for JSON.

    Raises:
        LimitError: too many actors for this machine's limit of open files.
        StageError: a process failed, or something took longer than it can.

    """
    limit = raise_limit()
    check_servers(options.actors, limit, option="--actors")
    num_processes = client_processes(options.actors, limit, options.processes)
    hardware = describe_hardware()
    settings = _with_free_port(settings, options)
    with tempfile.TemporaryDirectory(prefix="herd-fan-in-") as directory, ExitStack() as started:
        config = Path(directory) / "config.yaml"
        config.write_text(dump_settings(settings))
        advance("starting", 0.0)
        receiver = started.enter_context(Child("receiver", _receiver_command(config, options)))
        metrics = receiver.receive(START_SECONDS)["metrics"]
        first = 0
        crowds = []
        for count, breaks in zip(shares(options.actors, num_processes), shares(options.breaks, num_processes), strict=True):
            crowds.append(started.enter_context(Child("actors", _actors_command(config, options, first=first, count=count, breaks=breaks))))
            first += count
        for crowd in crowds:
            crowd.receive(START_SECONDS)
        readings = _Measurement(receiver, crowds, metrics, options, advance).readings()
    return make_fan_in_report(settings, options, readings, hardware, num_processes=num_processes)


class _Measurement:
    """Runs the phases, with all processes at hand."""

    def __init__(self, receiver: Child, crowds: Sequence[Child], metrics: str, options: FanInOptions, advance: Advance) -> None:
        self._receiver = receiver
        self._crowds = crowds
        self._metrics = metrics
        self._options = options
        self._advance = advance
        self._client_processes = [psutil.Process(crowd.pid) for crowd in crowds]

    def readings(self) -> FanInReadings:
        before = self._read()
        hello_seconds = self._connect()
        connected = self._read()
        self._tell("send")
        if self._options.messages_per_actor is None:
            self._wait(WARMUP_SECONDS + (self._options.interval_seconds or 0.0), "warming up")
            start = self._read(by_actor=True)
            busy_cores()
            self._wait(self._options.seconds, "measuring")
            busy = busy_cores()
            end = self._read(by_actor=True)
            self._tell("stop")
            sent = self._results()
        else:
            start = connected
            busy_cores()
            self._tell("stop", now=False)
            sent = self._results()
            busy = busy_cores()
            end = self._read(by_actor=True)
        return FanInReadings(before, connected, start, end, self._drain(sent), sent, hello_seconds, busy)

    def _connect(self) -> float:
        """Seconds until every actor has a session."""
        began = time.monotonic()
        self._tell("connect")
        while (connected := self._sessions()) < self._options.actors:
            if time.monotonic() - began > CONNECT_SECONDS:
                raise StageError(f"fan-in: {connected} of {self._options.actors} actors said hello within {CONNECT_SECONDS:g} s")
            self._check()
            self._advance(f"{connected:,} actors have said hello", connected / self._options.actors)
            time.sleep(0.05)
        return time.monotonic() - began

    def _wait(self, seconds: float, what: str) -> None:
        began = time.monotonic()
        last, last_at = self._status()["unrolls_consumed"], began
        while (elapsed := time.monotonic() - began) < seconds:
            time.sleep(min(LOOK_SECONDS, seconds - elapsed))
            status, now = self._status(), time.monotonic()
            rate = (status["unrolls_consumed"] - last) / (now - last_at)
            last, last_at = status["unrolls_consumed"], now
            memory = status["resident_bytes"] / 2**20
            self._advance(f"{what}: {rate:,.0f} unrolls/s, {memory:,.0f} MiB at the receiver", (now - began) / seconds)

    def _results(self) -> dict[str, Any]:
        """What all actors sent, once everything is acknowledged."""
        deadline = time.monotonic() + FINISH_SECONDS
        results: list[dict[str, Any]] = []
        while len(results) < len(self._crowds):
            if time.monotonic() > deadline:
                raise StageError(f"fan-in: not everything was acknowledged within {FINISH_SECONDS:g} s")
            results += [line for crowd in self._crowds if (line := crowd.poll(0.02)) is not None]
            self._receiver.check()
            if self._options.messages_per_actor is not None:
                total_unrolls = self._options.actors * self._options.messages_per_actor * self._options.unrolls_per_message
                self._advance("measuring", self._status()["unrolls_consumed"] / total_unrolls)
        return {
            "by_actor": {int(actor): count for result in results for actor, count in result["sent_by_actor"].items()},
            "refused": next((result["refused"] for result in results if result["refused"] is not None), None),
            **{
                name: sum(result[name] for result in results)
                for name in ("frames_sent", "unrolls_unacknowledged", "unrolls_resent", "sessions", "rejected")
            },
        }

    def _drain(self, sent: dict[str, Any]) -> Reading:
        """Consume what is left; everything is acknowledged, so it is there."""
        deadline = time.monotonic() + FINISH_SECONDS
        self._receiver.ask("drain", timeout_seconds=ANSWER_SECONDS)
        wanted = sum(sent["by_actor"].values())
        while True:
            status = self._status()
            # Not equal at the deadline: the report says what is missing.
            if status["unrolls_consumed"] >= wanted or time.monotonic() > deadline:
                time.sleep(METER_SECONDS)
                return self._read(by_actor=True)
            if status["unrolls_waiting"] == 0 and status["frames"]["in_flight"] == 0:
                deadline = min(deadline, time.monotonic() + 1.0)
            time.sleep(0.02)

    def _read(self, *, by_actor: bool = False) -> Reading:
        status = self._receiver.ask("status", timeout_seconds=ANSWER_SECONDS, by_actor=by_actor)
        times = [process.cpu_times() for process in self._client_processes]
        return Reading(status, self._scrape(), sum(spent.user + spent.system for spent in times))

    def _status(self) -> dict[str, Any]:
        return self._receiver.ask("status", timeout_seconds=ANSWER_SECONDS)

    def _sessions(self) -> int:
        return int(total(self._scrape(), "herd_learner_connected_actors"))

    def _scrape(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        try:
            return scrape(self._metrics, timeout=ANSWER_SECONDS)
        except ScrapeError as error:
            raise StageError(f"receiver: {error}") from error

    def _tell(self, do: str, **arguments: object) -> None:
        for crowd in self._crowds:
            crowd.send(do, **arguments)

    def _check(self) -> None:
        for child in (self._receiver, *self._crowds):
            child.check()


def _with_free_port(settings: RunSettings, options: FanInOptions) -> RunSettings:
    port = choose_ports({"learner.port": (settings.learner.host, 0)})["learner.port"]
    learner = settings.learner.model_copy(update={"port": port, "metrics_port": 0})
    address = local_address(settings.learner.host, port)
    actor = settings.actor.model_copy(update={"learner": (address,), "environments": options.unrolls_per_message})
    return settings.model_copy(update={"learner": learner, "actor": actor})


def _receiver_command(config: Path, options: FanInOptions) -> list[str]:
    # Where actors set the pace, the consumer takes whatever comes.
    rate = float("inf") if options.paced else options.unrolls_per_second
    words = ["--config", str(config), "--unrolls-per-second", str(rate)]
    return [sys.executable, "-m", "herd_learner.fan_in", *words]


def _actors_command(config: Path, options: FanInOptions, *, first: int, count: int, breaks: int) -> list[str]:
    words = ["--config", str(config), "--first-index", str(first), "--count", str(count), "--breaks", str(breaks)]
    words += ["--unrolls-per-message", str(options.unrolls_per_message)]
    if options.messages_per_actor is not None:
        words += ["--max-messages", str(options.messages_per_actor)]
    if options.interval_seconds is not None:
        words += ["--interval", str(options.interval_seconds)]
    return [sys.executable, "-m", "herd.bench.fan.actors", *words]
