"""``python -m herd_learner.fan_in --config FILE --unrolls-per-second R``: the real ingest, for ``herd bench fan-in``.

The learner's own I/O thread, queue, ledger, credit and metrics. In the place of the training thread, a consumer that takes batches at a
given rate and does nothing with them but look at the order of each actor's unrolls: their ``episode_id`` counts 0, 1, 2, ... It copies
no batch and publishes no weights. Answers each command on standard input, ``{"do": "status"}``, with one line, and ends with its input.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from herd.bench.fan.child import peak_memory_bytes
from herd.bench.fan.lines import LineReader, say
from herd.config.contract import contract_digest
from herd.envs.make import environment_spec
from herd.service.startup import parse_settings
from herd.telemetry.telemetry import Telemetry
from herd.wire.run_layout import run_layout
from herd_learner.io_thread import IoThread
from herd_learner.ledger import Ledger
from herd_learner.meters import Meters
from herd_learner.queue import UnrollQueue
from herd_learner.statistics import RunStatistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.config.settings import RunSettings
    from herd_learner.queue import QueuedUnroll

TAKE_SECONDS = 0.02
"""Longest wait for a batch: commands are answered after it."""
LATE_SECONDS = 0.5
"""Of batches that came late, a consumer catches up with no more than this: a learner has no time to win back either."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Consumer:
    """Takes what a learner of this rate would, and counts what it got from whom."""

    def __init__(self, queue: UnrollQueue, ledger: Ledger, *, batch_size: int, unrolls_per_second: float) -> None:
        self.num_consumed = 0
        self.num_out_of_order = 0
        """Unrolls that were not the next of their actor: lost before, or taken twice."""
        self.by_actor: Counter[int] = Counter()
        self._queue = queue
        self._ledger = ledger
        self._batch_size = batch_size
        self._interval = batch_size / unrolls_per_second
        self._due = time.monotonic()
        self._next: Counter[tuple[int, int]] = Counter()

    def turn(self) -> int:
        """Take a batch if it is time for one and there is one; returns its unrolls. Waits ``TAKE_SECONDS`` at most."""
        now = time.monotonic()
        if now < self._due:
            time.sleep(min(self._due - now, TAKE_SECONDS))
            return 0
        unrolls, _ = self._queue.take(self._batch_size, lambda _: False, TAKE_SECONDS)
        if unrolls:
            self._due = max(self._due + self._interval, time.monotonic() - LATE_SECONDS)
        return self._consume(unrolls)

    def drain(self) -> int:
        """Take what is left, less than a batch at the end; returns how many."""
        return self._consume(self._queue.take(min(self._batch_size, max(1, len(self._queue))), lambda _: False, TAKE_SECONDS)[0])

    def _consume(self, unrolls: list[QueuedUnroll]) -> int:
        for unroll in unrolls:
            if int(unroll.block.arrays["episode_id"][unroll.row]) != self._next[unroll.actor]:
                self.num_out_of_order += 1
            self._next[unroll.actor] += 1
            self.by_actor[unroll.actor[0]] += 1
            self._ledger.consume(unroll.num_frames)
        self._queue.release(unrolls)
        self.num_consumed += len(unrolls)
        return len(unrolls)


class Receiver:
    """The learner's half of the measurement."""

    def __init__(self, settings: RunSettings, *, unrolls_per_second: float) -> None:
        """Bind ``learner.port``.

        Raises:
            EndpointInUse: another process has it.

        """
        spec = environment_spec(settings.env)
        layout = run_layout(settings, spec)
        self._ledger = Ledger()
        self._queue = UnrollQueue(layout)
        self._telemetry = Telemetry("learner", settings.name)
        meters = Meters(
            self._telemetry,
            spec=spec,
            algorithm=settings.algorithm,
            ledger=self._ledger,
            queue=self._queue,
            statistics=RunStatistics(spec),
        )
        self._io = IoThread(
            settings,
            contract=contract_digest(settings, spec),
            layout=layout,
            spec=spec,
            ledger=self._ledger,
            queue=self._queue,
            meters=meters,
        )
        self._consumer = Consumer(self._queue, self._ledger, batch_size=settings.num_online_unrolls, unrolls_per_second=unrolls_per_second)
        self._process = psutil.Process()
        self._draining = False
        self.metrics_port = self._telemetry.serve(settings.learner.metrics_host, settings.learner.metrics_port)
        """Where /metrics tells the rest."""

    def serve(self, commands: LineReader) -> None:
        """Consume until ``commands`` ends, answering each on the way."""
        self._io.start()
        try:
            while True:
                if self._io.failure is not None:
                    raise RuntimeError("the I/O thread died") from self._io.failure
                taken = self._consumer.drain() if self._draining else self._consumer.turn()
                if taken:
                    self._io.grant_again(taken)
                for command in commands.read():
                    self._draining |= command["do"] == "drain"
                    say(self.status(by_actor=command["do"] == "drain" or bool(command.get("by_actor"))))
        except EOFError:
            return
        finally:
            self._io.close()
            self._telemetry.close()

    def status(self, *, by_actor: bool = False) -> dict[str, Any]:
        """Totals since the start, as of now."""
        ledger = self._ledger.totals()
        return {
            "at": time.monotonic(),
            "cpu_seconds": time.process_time(),
            "thread_cpu_seconds": _thread_cpu_seconds(),
            "resident_bytes": self._process.memory_info().rss,
            "peak_resident_bytes": peak_memory_bytes(),
            "unrolls_consumed": self._consumer.num_consumed,
            "out_of_order": self._consumer.num_out_of_order,
            "frames": {**ledger.report(), "balanced": ledger.is_balanced},
            "unrolls_waiting": len(self._queue),
            "unrolls_allocated": self._queue.num_allocated,
            **({"by_actor": dict(self._consumer.by_actor)} if by_actor else {}),
        }


def _thread_cpu_seconds() -> dict[str, float]:
    """Processor time of the I/O thread, of ZeroMQ's thread, and of the consumer (the main thread), in hundredths of a second."""
    io_thread = next((thread.native_id for thread in threading.enumerate() if thread.name == "learner-io"), None)
    seconds = dict.fromkeys(("io_thread", "zeromq", "consumer"), 0.0)
    for task in Path("/proc/self/task").iterdir():
        try:
            name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # it ended
        spent = sum(map(int, rest.split()[11:13])) / TICKS_PER_SECOND
        if task.name == str(io_thread):
            seconds["io_thread"] += spent
        elif task.name == str(os.getpid()):
            seconds["consumer"] += spent
        elif name.startswith("ZMQbg"):
            seconds["zeromq"] += spent
    return seconds


def main(argv: Sequence[str]) -> int:
    """Serve; the exit code."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--unrolls-per-second", type=float, required=True)
    options, words = parser.parse_known_args(argv)
    settings = parse_settings("learner", words)
    receiver = Receiver(settings, unrolls_per_second=options.unrolls_per_second)
    say({"metrics": f"http://{settings.learner.metrics_host}:{receiver.metrics_port}/metrics"})
    receiver.serve(LineReader(sys.stdin.fileno()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
