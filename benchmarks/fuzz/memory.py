"""Measures how much memory attackers can make a server use: ``python -m benchmarks.fuzz.memory``; ``--checkout DIR`` tests another version.

Each attack has its own server, without protection, with the run's token and with keys, next to a client that sends a request every 20 ms.
It prints a table: growth of the server's peak memory, the client's longest wait, and the number of connections that the server closed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.fuzz.siege import question
from herd.cli.keys import make_keys
from herd.components.suites import environment_spec
from herd.config.encryption_keys import RUN_TOKEN_VARIABLE
from herd.config.loading import load_settings
from herd.config.run import SecuritySettings
from herd.config.run_contract import contract_digest
from herd.protocols.weights.messages import GetWeights, PublishSlice
from herd.rpc.codec import encode
from herd.telemetry.scrape import scrape, total
from herd.transport import Limits
from herd.transport.context import Context

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herd.transport import Frame

ROOT = Path(__file__).parents[2]
CATCH = ROOT / "experiments" / "catch.yaml"
TOKEN = "0" * 64
MODES = {"clear": b"NULL", "token": b"PLAIN", "keys": b"CURVE"}
MEBIBYTE = 1 << 20
VERSION_BYTES = 150 * MEBIBYTE
WORDS = {
    "paramserver": [],
    "learner": ["--learner.threads", "1"],
    "bandit": [],
    "replay": ["--replay.kind", "shared", "--actor.environments", "4"],
    "population": [
        *("--population.strategy", "pbt", "--population.fitness", "episode_return"),
        *("--agents", "2", "--sweep", '{"loss.entropy_cost": [0.01, 0.02]}'),
    ],
    "inference": ["--actor.inference", "remote"],
}
"""Settings by service, in addition to those of Catch."""


class Server:
    """A server of this checkout or of another one."""

    def __init__(self, service: str, mode: str, checkout: Path, folder: Path) -> None:
        self.service = service
        self.mode = mode
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HERD_")}
        services = [str(path) for path in sorted((checkout / "services").iterdir())]
        environ["PYTHONPATH"] = os.pathsep.join([str(checkout), *services])
        words = ["--config", str(CATCH), "--run_dir", str(folder), *WORDS[service]]
        self.security = None
        self.environ: dict[str, str] = {}
        if mode == "token":
            self.environ = {RUN_TOKEN_VARIABLE: TOKEN}
        elif mode == "keys":
            keys = folder / "keys"
            make_keys(keys)
            self.security = SecuritySettings(curve_keys=keys)
            words += ["--security.curve_keys", str(keys)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"herd_{service}", *words],
            env=environ | self.environ,
            cwd=checkout,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        said = next((line for line in self.process.stdout if "metrics_port=" in line), "")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        found = re.search(r"metrics_port=(\d+)", said)
        if found is None:
            raise SystemExit(f"the server did not start: {said}")
        self.metrics_port = int(found[1])
        listening = [connection for connection in psutil.Process(self.process.pid).net_connections("tcp") if connection.status == "LISTEN"]
        ports = {connection.laddr.port for connection in listening} - {self.metrics_port}
        self.endpoint = f"tcp://127.0.0.1:{ports.pop()}"

    @property
    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) << 10

    def connect(self) -> socket.socket:
        """Open a hostile connection, as far as that is possible without token and keys."""
        host, _, port = self.endpoint.removeprefix("tcp://").rpartition(":")
        peer = socket.create_connection((host, int(port)))
        peer.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + MODES[self.mode].ljust(20, b"\0") + bytes(32))
        if self.mode == "clear":
            ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
            peer.sendall(b"\x04" + bytes([len(ready)]) + ready)
        peer.setblocking(False)
        return peer


class BusyClient(threading.Thread):
    """Sends requests that a server answers at once, and records the longest wait."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.longest = 0.0
        self.stopping = False
        settings = load_settings([CATCH], [], {})
        self.run_id, self.contract = settings.name, contract_digest(settings, environment_spec(settings.env))
        self.heard = threading.Event()

    def run(self) -> None:
        with (
            Context(self.server.security, self.server.environ) as context,
            context.client(self.server.endpoint, "client/1", Limits(max_frame_bytes=1 << 30)) as dealer,
        ):
            request_id, asked_at = 0, time.monotonic()
            while not self.stopping:
                request_id += 1
                asked_at = time.monotonic()
                while not self.stopping and not dealer.send(self._question(request_id)):
                    dealer.receive()
                    time.sleep(0.01)
                while not self.stopping and dealer.receive() is None:
                    dealer.wait(0.05)
                    if time.monotonic() - asked_at > 5.0:  # lost with its connection
                        break
                self.longest = max(self.longest, time.monotonic() - asked_at) if self.heard.is_set() else 0.0
                self.heard.set()
                time.sleep(0.02)

    def _question(self, request_id: int) -> Sequence[Frame]:
        if self.server.service != "paramserver":
            return [question(self.server.service)]
        return encode(GetWeights(id=request_id, run=self.run_id, agent=0, contract=self.contract, have=None))


def pour(server: Server, seconds: float, num_connections: int, head: bytes, data: bytes) -> None:
    """Send ``head`` and then ``data`` repeatedly over several connections; a closed connection is opened again."""
    deadline = time.monotonic() + seconds
    peers: dict[socket.socket, memoryview] = {}
    while time.monotonic() < deadline:
        while len(peers) < num_connections:
            with contextlib.suppress(OSError):
                peers[server.connect()] = memoryview(head + data)
        _, writable, _ = select.select([], peers, [], 0.1)
        for peer in writable:
            try:
                rest = peers[peer][peer.send(peers[peer]) :]
            except BlockingIOError:
                continue
            except OSError:
                peer.close()
                del peers[peer]
                continue
            peers[peer] = rest if len(rest) else memoryview(data)
    for peer in peers:
        peer.close()


def long_frames(server: Server, client: BusyClient, seconds: float) -> None:
    """Six connections, each with an endless frame of 1 GiB; a command, if the server expects a handshake."""
    del client
    flags = b"\x02" if server.mode == "clear" else b"\x06"
    pour(server, seconds, 6, flags + struct.pack(">Q", 1 << 30), bytes(MEBIBYTE))


def allowed_frames(server: Server, client: BusyClient, seconds: float) -> None:
    """The same with frames of the largest size that the server allows, at least 1 MiB."""
    del client
    flags = b"\x03" if server.mode == "clear" else b"\x06"
    pour(server, seconds, 6, b"", flags + struct.pack(">Q", MEBIBYTE) + bytes(MEBIBYTE))


def small_frames(server: Server, client: BusyClient, seconds: float) -> None:
    """One connection with a message of endlessly many frames of one byte."""
    del client
    pour(server, seconds, 1, b"", b"\x01\x01x" * 100_000)


def large_version(server: Server, client: BusyClient, seconds: float) -> None:
    """A version of 150 MB is published, if clients do not authenticate; then the same as before."""
    if server.mode == "clear":
        payload = bytes(VERSION_BYTES)
        version = PublishSlice(
            run=client.run_id,
            agent=0,
            contract=client.contract,
            lineage=1,
            updates=1,
            index=0,
            count=1,
            digest=hashlib.sha256(payload).hexdigest(),
        )
        header = encode(version)[0]
        with Context() as context, context.client(server.endpoint, "publisher/1", Limits(max_frame_bytes=0)) as dealer:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and not dealer.send([header, payload]):
                dealer.receive()
                time.sleep(0.01)
            while time.monotonic() < deadline and dealer.receive() is None:
                dealer.wait(0.1)
    allowed_frames(server, client, seconds)


ATTACKS: tuple[Callable[[Server, BusyClient, float], None], ...] = (long_frames, allowed_frames, small_frames, large_version)


def measure(
    attack: Callable[[Server, BusyClient, float], None], service: str, mode: str, checkout: Path, seconds: float
) -> dict[str, object]:
    """Run one attack on one server."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(service, mode, checkout, Path(folder))
        try:
            client = BusyClient(server)
            client.start()
            client.heard.wait(60.0)
            before = server.peak_bytes
            attack(server, client, seconds)
            is_alive = server.process.poll() is None
            samples = scrape(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=30.0) if is_alive else {}
            client.stopping = True
            client.join(10.0)
            return {
                "attack": attack.__name__,
                "service": service,
                "mode": mode,
                "peak_growth_mebibytes": round((server.peak_bytes - before) / MEBIBYTE) if is_alive else None,
                "longest_stall_seconds": round(client.longest, 2),
                "connections_cut": round(total(samples, "herd_wire_connections_cut_total")),
                "alive": is_alive,
            }
        finally:
            server.process.kill()
            server.process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each attack")
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=list(MODES))
    parser.add_argument("--attacks", nargs="*", default=[attack.__name__ for attack in ATTACKS])
    parser.add_argument("--services", nargs="*", default=["paramserver"], choices=list(WORDS))
    parser.add_argument("--checkout", type=Path, default=ROOT, help="whose server is attacked; default: this one's")
    parser.add_argument("--output", type=Path, help="the results, as JSON")
    options = parser.parse_args()
    results = []
    print(f"{'attack':<16}{'service':<13}{'mode':<8}{'peak growth, MiB':>18}{'longest stall, s':>18}{'cut':>8}  alive")
    for attack, service in itertools.product(ATTACKS, options.services):
        if attack.__name__ not in options.attacks or (attack is large_version and service != "paramserver"):
            continue
        for mode in options.modes:
            result = measure(attack, service, mode, options.checkout.resolve(), options.seconds)
            results.append(result)
            name, _, where, growth, stall, cut, alive = result.values()
            print(f"{name:<16}{service:<13}{where:<8}{growth!s:>18}{stall!s:>18}{cut!s:>8}  {'yes' if alive else 'NO'}", flush=True)
    if options.output is not None:
        options.output.write_text(json.dumps({"command": " ".join(sys.argv), "results": results}, indent=1) + "\n")
    return 0 if all(result["alive"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
