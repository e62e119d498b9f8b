"""The process from outside: real sockets over loopback, real signals."""

from __future__ import annotations

import hashlib
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from herd.config.contract import contract_digest
from herd.config.loading import dump_settings
from herd.config.settings import ParamserverSettings, RunSettings
from herd.envs.make import environment_spec
from herd.telemetry.scrape import Samples, scrape
from herd.wire.codec import decode_header, encode
from herd.wire.messages import (
    Ack,
    GetWeights,
    IndexLeased,
    LeaseIndex,
    Message,
    NotModified,
    Published,
    PublishSlice,
    Refused,
    Weights,
)
from herd.wire.sockets import Context, Dealer, new_context
from herd.wire.weights_client import WeightsClient, WeightsPublisher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANSWER_SECONDS = 10.0


class Server:
    """One paramserver process."""

    def __init__(self, run_dir: Path, *, port: int = 0) -> None:
        self.settings = RunSettings(name="pong", run_dir=run_dir, paramserver=ParamserverSettings(port=port, index_lease_seconds=2.0))
        self.contract = contract_digest(self.settings, environment_spec(self.settings.env))
        run_dir.mkdir(parents=True, exist_ok=True)
        config = run_dir / "config.yaml"
        config.write_text(dump_settings(self.settings))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "services.paramserver", "--config", str(config)], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        line = next(line for line in self.process.stderr if "listening" in line)
        self.port = int(_found(r"endpoint=tcp://127\.0\.0\.1:(\d+)", line))
        self.metrics_port = int(_found(r"metrics_port=(\d+)", line))

    @property
    def endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def metrics(self) -> Samples:
        return scrape(f"http://127.0.0.1:{self.metrics_port}/metrics")

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(ANSWER_SECONDS)


class Client:
    """Asks by hand, so that it can also say what no client of ours would."""

    def __init__(self, context: Context, server: Server) -> None:
        self.server = server
        self.dealer = Dealer(context, server.endpoint, routing_id=f"test/{secrets.token_hex(4)}", max_frame_bytes=1 << 26)

    def send(self, *frames: bytes | memoryview) -> None:
        _until(lambda: self.dealer.send(frames))

    def receive(self) -> tuple[Message, list[memoryview]]:
        assert self.dealer.wait(ANSWER_SECONDS)
        frames = self.dealer.receive()
        assert frames is not None
        return decode_header(frames[0]), frames[1:]

    def ask(self, message: Message, *payloads: bytes) -> Message:
        self.send(*encode(message), *payloads)
        return self.receive()[0]

    def get(self, have: tuple[int, int] | None = None, *, run_id: str = "pong") -> tuple[Message, list[memoryview]]:
        self.send(*encode(GetWeights(request_id=1, run_id=run_id, contract=self.server.contract, have=have)))
        return self.receive()

    def publish(self, lineage: int, updates: int, payload: bytes, *, index: int = 0, count: int = 1) -> Message:
        digest = hashlib.sha256(payload).hexdigest()
        message = PublishSlice(
            run_id="pong", contract=self.server.contract, lineage=lineage, updates=updates, index=index, count=count, digest=digest
        )
        return self.ask(message, payload)


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None, text
    return match.group(1)


def _until(condition: Callable[[], bool], seconds: float = ANSWER_SECONDS) -> None:
    """For what has no event to wait for: a connection being made, another process's counter."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


@contextmanager
def running(run_dir: Path, *, port: int = 0) -> Iterator[Server]:
    server = Server(run_dir, port=port)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        assert server.process.stderr is not None
        server.process.stderr.close()


@pytest.fixture
def context() -> Iterator[Context]:
    with new_context() as made:
        yield made


Connect = Callable[[Server], Client]


@pytest.fixture
def connect(context: Context) -> Iterator[Connect]:
    clients: list[Client] = []

    def make(server: Server) -> Client:
        clients.append(Client(context, server))
        return clients[-1]

    yield make
    for client in clients:
        client.dealer.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running(tmp_path / "run") as started:
        yield started


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_exit_code_0(server: Server, number: int) -> None:
    assert server.end(number) == 0


def test_weights_go_from_publisher_to_clients(server: Server, connect: Connect) -> None:
    payloads = [secrets.token_bytes(200_000), secrets.token_bytes(100)]
    publisher, client = connect(server), connect(server)
    assert client.get()[0] == NotModified(request_id=1, held=None)
    for index, payload in enumerate(payloads):
        assert publisher.publish(3, 14, payload, index=index, count=2) == Published(lineage=3, updates=14, index=index)
    for reader in (client, publisher, connect(server)):
        message, frames = reader.get((3, 13))
        assert isinstance(message, Weights)
        assert (message.lineage, message.updates) == (3, 14)
        assert [bytes(frame) for frame in frames] == payloads
    assert client.get((3, 14))[0] == NotModified(request_id=1, held=(3, 14))
    samples = server.metrics()
    assert samples["herd_paramserver_versions_total", ()] == 1
    assert samples["herd_paramserver_answers_total", (("answer", "weights"),)] == 3
    assert samples["herd_paramserver_answers_total", (("answer", "not_modified"),)] == 2
    assert samples["herd_paramserver_weights_bytes", ()] == 200_100
    assert (samples["herd_weights_lineage", ()], samples["herd_weights_updates", ()]) == (3, 14)
    assert samples["herd_wire_sent_bytes_total", (("stream", "weights"),)] > 3 * 200_100
    assert 0 <= samples["herd_weights_age_seconds", ()] < ANSWER_SECONDS


def test_another_run_is_refused(server: Server, connect: Connect) -> None:
    message, _ = connect(server).get(run_id="breakout")
    assert isinstance(message, Refused)
    assert "belongs to run pong" in message.reason
    assert server.metrics()["herd_paramserver_answers_total", (("answer", "refused"),)] == 1


def test_garbage_changes_nothing_but_counters(server: Server, connect: Connect) -> None:
    honest, stranger = connect(server), connect(server)
    payload = secrets.token_bytes(1000)
    honest.publish(1, 5, payload)
    digest = hashlib.sha256(payload).hexdigest()
    newer = encode(
        PublishSlice(run_id="pong", contract=server.contract, lineage=9, updates=9, index=0, count=1, digest=digest)
    )[0]  # fmt: skip

    for length in range(200):
        stranger.send(secrets.token_bytes(length))
    stranger.send(newer)
    stranger.send(newer, payload, payload)
    stranger.send(newer, b"damaged")
    stranger.send(newer[: len(newer) // 2], payload)
    stranger.send(*encode(Ack(sequence=1, granted_unrolls=1)))
    stranger.send(b"\x81" * 2_000_000)  # longer than any header: the whole connection goes, or the message does
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(secrets.token_bytes(10_000))

    _until(lambda: sum(_malformed(server).values()) >= 206)
    counted = _malformed(server)
    assert counted["digest"] == 1
    assert counted["array"] == 2
    assert counted["unexpected"] == 1
    message, frames = honest.get()
    assert isinstance(message, Weights)
    assert (message.lineage, message.updates) == (1, 5)
    assert bytes(frames[0]) == payload
    assert server.metrics()["herd_paramserver_versions_total", ()] == 1
    assert server.process.poll() is None


def _malformed(server: Server) -> dict[str, float]:
    name = "herd_wire_malformed_messages_total"
    return {labels[0][1]: value for (metric, labels), value in server.metrics().items() if metric == name}


def test_after_kill_9_the_publisher_publishes_again_and_clients_get_it(tmp_path: Path, context: Context) -> None:
    weights = secrets.token_bytes(300_000)
    with running(tmp_path / "run") as first:
        publisher = WeightsPublisher(context, first.endpoint, run_id="pong", contract=first.contract)
        reader = WeightsClient(context, first.endpoint, run_id="pong", contract=first.contract)
        publisher.publish(1, 41, 0, 1, b"old")
        _publish_until(publisher, lambda: publisher.confirmed)
        publisher.publish(1, 42, 0, 1, weights)
        _publish_until(publisher, lambda: publisher.confirmed)
        assert _get(reader, None) == (1, 42, weights)
        assert first.end(signal.SIGKILL) == -signal.SIGKILL

    with running(tmp_path / "run", port=first.port) as second:
        late = WeightsClient(context, second.endpoint, run_id="pong", contract=second.contract)
        _publish_until(publisher, lambda: second.metrics()["herd_paramserver_versions_total", ()] == 1)
        assert _get(late, None) == (1, 42, weights)
        # Who has it already is not given it again, and gets the next one.
        reader.request((1, 42))
        _until(lambda: reader.poll() is None and not reader.pending)
        assert reader.held == (1, 42)
        publisher.publish(1, 43, 0, 1, b"new")
        _publish_until(publisher, lambda: publisher.confirmed)
        assert _get(reader, (1, 42)) == (1, 43, b"new")
        for socket_owner in (publisher, reader, late):
            socket_owner.close()


def test_a_learner_that_went_back_is_told_to_open_a_lineage(server: Server, context: Context) -> None:
    before = WeightsPublisher(context, server.endpoint, run_id="pong", contract=server.contract)
    before.publish(1, 500, 0, 1, b"trained")
    _publish_until(before, lambda: before.confirmed)
    after = WeightsPublisher(context, server.endpoint, run_id="pong", contract=server.contract)
    after.publish(1, 400, 0, 1, b"restored")
    _publish_until(after, lambda: after.newer_lineage is not None)
    assert after.newer_lineage == 1
    after.publish(2, 400, 0, 1, b"restored")
    _publish_until(after, lambda: after.confirmed)
    reader = WeightsClient(context, server.endpoint, run_id="pong", contract=server.contract)
    assert _get(reader, (1, 500)) == (2, 400, b"restored")
    assert server.metrics()["herd_paramserver_stale_publishes_total", ()] == 1
    for socket_owner in (before, after, reader):
        socket_owner.close()


def _publish_until(publisher: WeightsPublisher, condition: Callable[[], bool]) -> None:
    def holds() -> bool:
        publisher.poll()
        return condition()

    _until(holds)


def _get(client: WeightsClient, have: tuple[int, int] | None) -> tuple[int, int, bytes]:
    client.request(have)
    weights = client.poll(ANSWER_SECONDS)
    assert weights is not None
    return weights.lineage, weights.updates, b"".join(weights.slices)


def test_an_index_is_free_again_when_its_holder_falls_silent(server: Server, connect: Connect) -> None:
    client = connect(server)

    def lease(holder: str) -> int:
        message = client.ask(LeaseIndex(request_id=1, run_id="pong", holder=holder, index=None))
        assert isinstance(message, IndexLeased)
        assert message.lease_seconds == 2.0
        return message.index

    assert [lease("first"), lease("second"), lease("first")] == [0, 1, 0]
    assert server.metrics()["herd_paramserver_leased_indices", ()] == 2
    _until(lambda: server.metrics()["herd_paramserver_leased_indices", ()] == 0)
    assert lease("third") == 0


def test_the_process_tells_where_it_is(server: Server) -> None:
    path = server.settings.directory / "processes" / "paramserver-0.json"
    assert f'"pid": {server.process.pid}' in path.read_text()
    assert f'"metrics_port": {server.metrics_port}' in path.read_text()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--paramserver.prt", "1"], "did you mean --paramserver.port?"),
        (["--env.tasks", "pongg"], "'pongg'"),
        (["--paramserver.port", "PORT"], "cannot bind"),
        (["--paramserver.metrics_port", "PORT", "--paramserver.port", "0"], "PORT"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(server: Server, tmp_path: Path, words: list[str], line: str) -> None:
    port = str(server.port)
    command = [sys.executable, "-m", "services.paramserver", "--run_dir", str(tmp_path / "other")]
    done = subprocess.run([*command, *(word.replace("PORT", port) for word in words)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert line.replace("PORT", port) in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_it_runs_where_torch_is_not_installed() -> None:
    script = "import sys, services.paramserver.server; print(sorted({'torch', 'ale_py', 'gymnasium'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
