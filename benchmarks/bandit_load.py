"""Measures how many exchanges a bandit process answers, and their latency:
``python benchmarks/bandit_load.py --clients 5000 --output FILE.json``.

It starts one ``herd_bandit`` and client processes with ``--clients`` connections over loopback. Like an actor, each connection has at most
one request under way. A request reports one game and requests one temperature. There are two kinds of phases:

  closed  Every client sends its next request as soon as it is answered, which shows the highest rate of the server. The latency is
          then the number of clients divided by that rate, and has no other meaning.
  open    Requests arrive at a given rate at random times (Poisson), each from an idle client. Latency counts from the time at which
          the request was due, so that a stall of the server is not hidden by waiting clients.

The server writes snapshots at their usual interval, and their stalls are part of the figures. At the end, the server's count of accepted
reports must equal that of the clients. Phases have a fixed length, and the whole benchmark has a deadline.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from herd.components.suites import environment_spec
from herd.config.loading import dump_settings
from herd.config.run import RunSettings
from herd.config.run_contract import contract_digest
from herd.protocols.bandit.messages import BANDIT, ExchangeTemperatures, FinishedEpisode, StartingEpisode, Temperatures
from herd.rpc.codec import encode
from herd.rpc.envelope import MAX_HEADER_BYTES
from herd.telemetry.scrape import scrape, total
from herd.transport import Limits
from herd.transport.context import Context

CLIENTS_PER_CONTEXT = 250  # a ZeroMQ context has 1,023 sockets, and a client takes three
CONNECT_SECONDS = 120.0
SETTLE_SECONDS = 10.0  # time to wait for the last answers of a phase
RUN = "bandit-load"


class LoadClient:
    """One connection with its own numbers, which sends what an actor would send."""

    def __init__(self, context: Context, endpoint: str, contract: str, incarnation: int) -> None:
        self.dealer = context.client(endpoint, f"bandit/{incarnation:016x}", Limits(max_frame_bytes=MAX_HEADER_BYTES, high_water_mark=4))
        self.contract = contract
        self.incarnation = incarnation
        self.number = 0
        self.due = 0.0
        self.is_waiting = False
        self.inverse_temperature = 1.0

    def send(self, due: float) -> bool:
        """Send the next request, due at ``time.perf_counter()`` = ``due``; return False if there is no connection."""
        message = ExchangeTemperatures(
            id=self.number + 1,
            run=RUN,
            contract=self.contract,
            agent=0,
            client=str(self.incarnation),
            purpose="training",
            finished=(
                FinishedEpisode(
                    task_id=0,
                    environment_slot=0,
                    episode_id=self.number,
                    inverse_temperature=self.inverse_temperature,
                    episode_return=-abs(math.log1p(self.inverse_temperature) - 2.0),
                    agent_steps=1000,
                    reused=False,
                ),
            ),
            starting=(StartingEpisode(task_id=0, environment_slot=0, episode_id=self.number + 1),),
        )
        if not self.dealer.send(encode(message)):
            return False
        self.number += 1
        self.due = due
        self.is_waiting = True
        return True

    def receive(self) -> float | None:
        """Return the latency of the answer if it has arrived."""
        frames = self.dealer.receive()
        if frames is None:
            return None
        answer = BANDIT.decode(frames[0])
        if not isinstance(answer, Temperatures) or answer.id != self.number:
            raise SystemExit(f"unexpected answer: {answer!r}")
        self.inverse_temperature = answer.handed[0].inverse_temperature
        self.is_waiting = False
        return time.perf_counter() - self.due


class Worker:
    """One client process with many clients in one thread."""

    def __init__(self, endpoint: str, contract: str, count: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.contexts = [Context() for _ in range(math.ceil(count / CLIENTS_PER_CONTEXT))]
        self.clients: list[LoadClient] = []
        self.epoll = select.epoll()
        deadline = time.monotonic() + CONNECT_SECONDS
        for index in range(count):
            client = LoadClient(self.contexts[index // CLIENTS_PER_CONTEXT], endpoint, contract, seed * 1_000_000 + index)
            self.clients.append(client)
            self.epoll.register(client.dealer.fileno(), select.EPOLLIN)
            if index % 50 == 49:
                self._connect(self.clients[-50:], deadline)
        self._connect(self.clients, deadline)
        self.by_fd = {client.dealer.fileno(): client for client in self.clients}

    def _connect(self, clients: list[LoadClient], deadline: float) -> None:
        while not all(client.dealer.connected for client in clients):
            if time.monotonic() > deadline:
                raise SystemExit("clients could not connect in time")
            for client in clients:
                client.dealer.receive()  # processes the handshake
            time.sleep(0.02)

    def closed(self, seconds: float) -> dict[str, object]:
        start = time.perf_counter()
        end = start + seconds
        latencies: list[float] = []
        for client in self.clients:
            client.send(time.perf_counter())
            self._drain(client, latencies, end, again=True)
        while time.perf_counter() < end:
            for fd, _ in self.epoll.poll(0.05):
                self._drain(self.by_fd[fd], latencies, end, again=True)
        answered, elapsed = len(latencies), time.perf_counter() - start
        self._settle([])
        return {"answered": answered, "seconds": elapsed, "latencies": latencies}

    def open(self, rate: float, seconds: float) -> dict[str, object]:
        start = time.perf_counter()
        end = start + seconds
        latencies: list[float] = []
        due = start + self.random.expovariate(rate)
        num_unserved = 0
        while due < end:
            now = time.perf_counter()
            while due <= now and due < end:
                client = self._idle()
                if client is None or not client.send(due):
                    num_unserved += 1  # all clients are waiting: the rate is far beyond the server's
                else:
                    self._drain(client, latencies)
                due += self.random.expovariate(rate)
            # The timeout is at least a millisecond: epoll rounds up, and a request would be late by its own clock.
            for fd, _ in self.epoll.poll(max(0.0, min(due - time.perf_counter() - 0.001, 0.05))):
                self._drain(self.by_fd[fd], latencies)
        self._settle(latencies)
        return {"answered": len(latencies), "seconds": seconds, "latencies": latencies, "unserved": num_unserved}

    def _idle(self) -> LoadClient | None:
        for _ in range(50):
            client = self.random.choice(self.clients)
            if not client.is_waiting:
                return client
        return None

    def _drain(self, client: LoadClient, latencies: list[float], end: float = 0.0, *, again: bool = False) -> None:
        """Read until nothing is left, because only then does the descriptor signal the next answer."""
        while (latency := client.receive()) is not None:
            latencies.append(latency)
            if again and time.perf_counter() < end:
                client.send(time.perf_counter())

    def _settle(self, latencies: list[float]) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while any(client.is_waiting for client in self.clients):
            if time.monotonic() > deadline:
                raise SystemExit("some requests were never answered")
            for fd, _ in self.epoll.poll(0.05):
                self._drain(self.by_fd[fd], latencies)

    def close(self) -> None:
        for client in self.clients:
            client.dealer.close()
        for context in self.contexts:
            context.destroy()


def work(endpoint: str, contract: str, count: int, seed: int) -> None:
    """Execute commands from standard input, one JSON line each, until it ends."""
    worker = Worker(endpoint, contract, count, seed)
    print(json.dumps({"connected": count}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        result = worker.closed(command["seconds"]) if command["rate"] is None else worker.open(command["rate"], command["seconds"])
        result["sent"] = sum(client.number for client in worker.clients)
        result["cpu_seconds"] = sum(psutil.Process().cpu_times()[:2])
        print(json.dumps(result), flush=True)
    worker.close()


class Load:
    """The server and the client processes."""

    def __init__(self, clients: int, workers: int, directory: Path, deadline: float) -> None:
        self.deadline = deadline
        settings = RunSettings(name=RUN, run_dir=directory)
        contract = contract_digest(settings, environment_spec(settings.env))
        config = directory / "config.yaml"
        config.write_text(dump_settings(settings))
        self.server = subprocess.Popen([sys.executable, "-m", "herd_bandit", "--config", str(config)], stderr=subprocess.PIPE, text=True)
        self.workers: list[subprocess.Popen[str]] = []
        assert self.server.stderr is not None
        words = next(line for line in self.server.stderr if "listening" in line).split()
        said = dict(word.split("=", 1) for word in words if "=" in word)
        self.metrics = f"http://127.0.0.1:{said['metrics_port']}/metrics"
        for index in range(workers):
            count = clients // workers + (index < clients % workers)
            command = [sys.executable, __file__, "--worker", said["endpoint"], contract, str(count), str(index + 1)]
            self.workers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            self.answer(self.workers[-1])  # one after the other, because the listen queue is short

    def answer(self, worker: subprocess.Popen[str]) -> dict[str, Any]:
        assert worker.stdout is not None
        if not select.select([worker.stdout], [], [], max(0.0, self.deadline - time.monotonic()))[0]:
            raise SystemExit("a client process did not answer in time")
        line = worker.stdout.readline()
        if not line:
            raise SystemExit("a client process ended")
        said: dict[str, Any] = json.loads(line)
        return said

    def phase(self, rate: float | None, seconds: float) -> dict[str, Any]:
        before = scrape(self.metrics, timeout=30.0)
        share = None if rate is None else rate / len(self.workers)
        for worker in self.workers:
            assert worker.stdin is not None
            worker.stdin.write(json.dumps({"rate": share, "seconds": seconds}) + "\n")
            worker.stdin.flush()
        results = [self.answer(worker) for worker in self.workers]
        after = scrape(self.metrics, timeout=30.0)
        latencies = sorted(1000.0 * latency for result in results for latency in result["latencies"])
        cpu = "herd_process_cpu_seconds_total"
        requests = "herd_bandit_requests_total"
        return {
            "offered_per_second": rate,
            "answered_per_second": sum(result["answered"] / result["seconds"] for result in results),
            "requests": len(latencies),
            "unserved": sum(result.get("unserved", 0) for result in results),
            "latency_ms": {name: latencies[min(int(share * len(latencies)), len(latencies) - 1)] for name, share in QUANTILES.items()},
            "server_us_per_request": 1e6
            * (total(after, cpu) - total(before, cpu))
            / max(total(after, requests) - total(before, requests), 1.0),
            "snapshots": total(after, "herd_bandit_snapshots_written_total") - total(before, "herd_bandit_snapshots_written_total"),
            "sent": sum(result["sent"] for result in results),
        }

    def check(self, sent: int) -> dict[str, float]:
        samples = scrape(self.metrics, timeout=30.0)
        accepted = total(samples, "herd_bandit_reports_total", outcome="accepted")
        if accepted != sent:
            raise SystemExit(f"{sent} reports were sent and {accepted:.0f} accepted")
        return {"accepted_reports": accepted, "resident_bytes": total(samples, "herd_process_resident_memory_bytes")}

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.server.send_signal(signal.SIGTERM)
        try:
            self.server.wait(10)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()


QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99, "p999": 0.999, "max": 1.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=4, help="client processes")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase")
    parser.add_argument("--rates", type=float, nargs="*", default=[500.0, 1000.0, 2000.0], help="requests a second of the open phases")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--worker", nargs=4, metavar=("ENDPOINT", "CONTRACT", "COUNT", "SEED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        endpoint, contract, count, seed = arguments.worker
        work(endpoint, contract, int(count), int(seed))
        return
    load_before = psutil.getloadavg()[0]  # load of the last minute by other programs
    phases: list[float | None] = [None, *arguments.rates]
    limit = arguments.workers * CONNECT_SECONDS + len(phases) * (arguments.seconds + 2 * SETTLE_SECONDS)
    with tempfile.TemporaryDirectory() as directory:
        load = Load(arguments.clients, arguments.workers, Path(directory), time.monotonic() + limit)
        try:
            load.phase(200.0, 2.0)  # first draws and allocations
            results = [load.phase(rate, arguments.seconds) for rate in phases]
            account = load.check(results[-1]["sent"])
        finally:
            load.close()
    report = {
        "command": " ".join(["python", "benchmarks/bandit_load.py", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "hardware": {"machine": platform.machine(), "cpus": psutil.cpu_count(), "python": platform.python_version()},
        "clients": arguments.clients,
        "client_processes": arguments.workers,
        "load_average_before": load_before,
        "phases": results,
        **account,
    }
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    print("| offered/s | answered/s | p50 ms | p90 ms | p99 ms | p99.9 ms | max ms | server us/request | snapshots |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for result in results:
        offered = "all they can" if result["offered_per_second"] is None else f"{result['offered_per_second']:,.0f}"
        latency = " | ".join(f"{value:,.1f}" for value in result["latency_ms"].values())
        server = f"{result['server_us_per_request']:,.0f} | {result['snapshots']:.0f}"
        print(f"| {offered} | {result['answered_per_second']:,.0f} | {latency} | {server} |")
    print(f"load average before: {load_before:.1f} on {psutil.cpu_count()} CPUs; ", end="")
    print(f"{account['accepted_reports']:,.0f} reports sent and accepted; server memory {account['resident_bytes'] / 2**20:,.0f} MiB")


if __name__ == "__main__":
    main()
