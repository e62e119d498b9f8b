"""Parameter servers in processes of their own, and clients that ask them by hand."""

from __future__ import annotations

import hashlib
import re
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from herd.config.contract import contract_digest
from herd.config.loading import dump_settings
from herd.config.settings import ParamserverSettings, RunSettings
from herd.envs.make import environment_spec
from herd.telemetry.scrape import Samples, scrape
from herd.wire.codec import decode_header, encode
from herd.wire.messages import GetWeights, Message, PublishSlice
from herd.wire.sockets import Context, Dealer
from herd.wire.weights_client import WeightsClient, WeightsPublisher

ANSWER_SECONDS = 20.0


class Server:
    """One paramserver process."""

    def __init__(self, run_dir: Path, *, port: int = 0, upstream: str | None = None) -> None:
        own = ParamserverSettings(port=port, upstream=upstream, index_lease_seconds=2.0)
        self.settings = RunSettings(name="pong", run_dir=run_dir, paramserver=own)
        self.contract = contract_digest(self.settings, environment_spec(self.settings.env))
        run_dir.mkdir(parents=True, exist_ok=True)
        config = run_dir / "config.yaml"
        config.write_text(dump_settings(self.settings))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "herd_paramserver", "--config", str(config)], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        line = next(line for line in self.process.stderr if "listening" in line)
        self.port = int(found(r"endpoint=tcp://127\.0\.0\.1:(\d+)", line))
        self.metrics_port = int(found(r"metrics_port=(\d+)", line))

    @property
    def endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def metrics(self) -> Samples:
        return scrape(f"http://127.0.0.1:{self.metrics_port}/metrics")

    def readiness(self) -> str:
        """What /readyz answers, whatever the status."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/readyz", timeout=ANSWER_SECONDS) as response:
                return str(response.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(ANSWER_SECONDS)


class Client:
    """Asks by hand, so that it can also say what no client of ours would."""

    def __init__(self, context: Context, server: Server) -> None:
        self.server = server
        self.dealer = Dealer(context, server.endpoint, routing_id=f"test/{secrets.token_hex(4)}", max_frame_bytes=1 << 26)

    def send(self, *frames: bytes | memoryview) -> None:
        until(lambda: self.dealer.send(frames))

    def receive(self) -> tuple[Message, list[memoryview]]:
        assert self.dealer.wait(ANSWER_SECONDS)
        frames = self.dealer.receive()
        assert frames is not None
        return decode_header(frames[0]), frames[1:]

    def ask(self, message: Message, *payloads: bytes) -> Message:
        self.send(*encode(message), *payloads)
        return self.receive()[0]

    def get(self, have: tuple[int, int] | None = None, *, run_id: str = "pong") -> tuple[Message, list[memoryview]]:
        self.send(*encode(GetWeights(request_id=1, run_id=run_id, agent=0, contract=self.server.contract, have=have)))
        return self.receive()

    def publish(self, lineage: int, updates: int, payload: bytes, *, index: int = 0, count: int = 1) -> Message:
        digest = hashlib.sha256(payload).hexdigest()
        message = PublishSlice(
            run_id="pong", agent=0, contract=self.server.contract, lineage=lineage, updates=updates, index=index, count=count, digest=digest
        )
        return self.ask(message, payload)


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None, text
    return match.group(1)


def until(condition: Callable[[], bool], seconds: float = ANSWER_SECONDS) -> None:
    """For what has no event to wait for: a connection being made, another process's counter."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


@contextmanager
def running(run_dir: Path, *, port: int = 0, upstream: str | None = None) -> Iterator[Server]:
    server = Server(run_dir, port=port, upstream=upstream)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        assert server.process.stderr is not None
        server.process.stderr.close()


def publish_until(publisher: WeightsPublisher, condition: Callable[[], bool]) -> None:
    def holds() -> bool:
        publisher.poll()
        return condition()

    until(holds)


def get_weights(client: WeightsClient, have: tuple[int, int] | None) -> tuple[int, int, bytes]:
    client.request(have)
    weights = client.poll(ANSWER_SECONDS)
    assert weights is not None
    return weights.lineage, weights.updates, b"".join(weights.slices)
