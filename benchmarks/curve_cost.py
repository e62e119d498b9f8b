"""Measures the cost of CURVE: ``python benchmarks/curve_cost.py [--rounds 7] [--seconds 4] [--handshakes 400] [--output FILE]``.

It measures two things, alternately unencrypted and encrypted, so that both see the same machine:

* Unrolls over loopback through the real client and the learner's real decoder, as in the transport stage of ``herd bench``.
* Connections: a new client completes the handshake, is authenticated, and exchanges one message.

Both ends run in this process, so processor time is that of both. Every figure is a median over rounds, with (min - max). It prints a table
and then one JSON object on the last line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.machine.transport import measure_transport
from herd.cli.keys import make_keys
from herd.components.suites import environment_spec
from herd.config.loading import load_settings
from herd.config.run import RunSettings, SecuritySettings
from herd.config.run_contract import run_layout
from herd.service.host import describe_hardware
from herd.transport import Client, Limits
from herd.transport.context import Context, Poller, Waker

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWER_SECONDS = 60.0
AT_ONCE = 32
"""Number of simultaneous connections: a restarted server has many at once, and each waits for round trips more than for work."""
MODES = ("clear", "curve")


@dataclass(frozen=True)
class Transport:
    messages_per_second: float
    megabytes_per_second: float
    core_microseconds_per_message: float


@dataclass(frozen=True)
class Connections:
    per_second: float
    core_microseconds_each: float


def unrolls(settings: RunSettings, security: SecuritySettings, seconds: float) -> Transport:
    measured = measure_transport(settings.model_copy(update={"security": security}), seconds=seconds)
    layout = run_layout(settings, environment_spec(settings.env))
    steps, num_bytes = (settings.actor.environments * number for number in (layout.new_steps, layout.bytes_per_unroll))
    rate = measured.agent_steps_per_second / steps
    return Transport(rate, rate * num_bytes / 1e6, measured.core_microseconds * steps)


@contextmanager
def echoing(security: SecuritySettings) -> Iterator[str]:
    """Run a server in a thread that echoes messages; yield its endpoint."""
    with Context(security) as context:
        router, waker = context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=0)), Waker()

        def serve() -> None:
            poller = Poller(router, waker)
            while waker not in poller.poll(1.0):
                while (received := router.receive()) is not None:
                    router.send(received[0], [bytes(received[1][0])])
            router.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield router.endpoint
        finally:
            waker.wake()
            thread.join()
            waker.close()


def measure_connections(security: SecuritySettings, count: int) -> Connections:
    with echoing(security) as endpoint, Context(security) as context:
        started, cpu_started = time.perf_counter(), time.process_time()
        opened = done = 0
        waiting: dict[Client, bool] = {}
        poller = Poller()
        while done < count:
            while opened < count and len(waiting) < AT_ONCE:
                dealer = context.client(endpoint, f"client/{opened}", Limits(max_frame_bytes=0))
                waiting[dealer] = False
                poller.register(dealer)
                opened += 1
            for dealer, asked in list(waiting.items()):
                waiting[dealer] = asked or dealer.send([b"hello"])
                if dealer.receive() is not None:
                    poller.unregister(dealer)
                    del waiting[dealer]
                    dealer.close()
                    done += 1
            poller.poll(0.0005)
            if time.perf_counter() - started > ANSWER_SECONDS:
                raise SystemExit(f"{done} of {count} connections in {ANSWER_SECONDS:g} s")
        elapsed, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    return Connections(done / elapsed, 1e6 * cpu / done)


def summary(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


Measured = dict[str, dict[str, dict[str, dict[str, float]]]]
"""Figures by mode (or the ratio of both), each with its median and spread."""


def report(rounds: dict[str, list[Transport]], connections: dict[str, list[Connections]]) -> Measured:
    """Return medians, and curve / clear round by round, because a machine that slows down affects both."""
    result: Measured = {}
    for name, measured in (("unrolls", rounds), ("connections", connections)):
        of_mode = {mode: [asdict(one) for one in measured[mode]] for mode in MODES}
        figures = list(of_mode["clear"][0])
        result[name] = {mode: {figure: summary([one[figure] for one in of_mode[mode]]) for figure in figures} for mode in MODES} | {
            "curve_over_clear": {
                figure: summary([curve[figure] / clear[figure] for clear, curve in zip(of_mode["clear"], of_mode["curve"], strict=True)])
                for figure in figures
            }
        }
    return result


def print_table(measured: Measured) -> None:
    table = Table("", *MODES, "curve / clear", box=None, pad_edge=False)
    for name, modes in measured.items():
        for figure in modes["clear"]:
            cells = []
            for column, digits in (*((mode, 1) for mode in MODES), ("curve_over_clear", 3)):
                value = modes[column][figure]
                cells.append(f"{value['median']:,.{digits}f} ({value['min']:,.{digits}f} - {value['max']:,.{digits}f})")
            table.add_row(f"{name}: {figure.replace('_', ' ')}", *cells)
    Console(width=160).print(table, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=Path("experiments/breakout.yaml"), help="whose unrolls are sent")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0, help="of unrolls per mode and round")
    parser.add_argument("--handshakes", type=int, default=400, help="per mode and round")
    parser.add_argument("--output", type=Path, help="write the JSON there too")
    arguments = parser.parse_args()
    settings = load_settings([arguments.file], [], {})
    transport: dict[str, list[Transport]] = {mode: [] for mode in MODES}
    connections: dict[str, list[Connections]] = {mode: [] for mode in MODES}
    hardware = describe_hardware()
    with tempfile.TemporaryDirectory(prefix="herd-curve-") as directory:
        make_keys(Path(directory) / "keys")
        security = {"clear": SecuritySettings(), "curve": SecuritySettings(curve_keys=Path(directory) / "keys")}
        for number in range(arguments.rounds):
            # Alternate the order, so that neither always finds a warmer machine.
            for mode in MODES if number % 2 == 0 else reversed(MODES):
                transport[mode].append(unrolls(settings, security[mode], arguments.seconds))
                connections[mode].append(measure_connections(security[mode], arguments.handshakes))
    measured = report(transport, connections)
    print_table(measured)
    result = {
        **measured,
        "rounds": arguments.rounds,
        "unrolls_per_message": settings.actor.environments,
        "handshakes_at_once": AT_ONCE,
        "command": " ".join(["python", "benchmarks/curve_cost.py", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware,
    }
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
