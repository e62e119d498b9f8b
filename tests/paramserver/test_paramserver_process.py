"""The process from outside: real sockets over loopback, real signals."""

from __future__ import annotations

import hashlib
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from herd.wire.codec import encode
from herd.wire.messages import Ack, IndexLeased, LeaseIndex, NotModified, Published, PublishSlice, Refused, Weights
from herd.wire.sockets import Context, new_context
from herd.wire.weights_client import WeightsClient, WeightsPublisher
from tests.paramserver.server_processes import Client, Server, get_weights, publish_until, running
from tests.server_process import ANSWER_SECONDS, connecting, until

pytestmark = pytest.mark.processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def context() -> Iterator[Context]:
    with new_context() as made:
        yield made


Connect = Callable[[Server], Client]


@pytest.fixture
def connect(context: Context) -> Iterator[Connect]:
    with connecting(Client, context) as connect:
        yield connect


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
        PublishSlice(run_id="pong", agent=0, contract=server.contract, lineage=9, updates=9, index=0, count=1, digest=digest)
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

    until(lambda: sum(_malformed(server).values()) >= 206)
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
        publish_until(publisher, lambda: publisher.confirmed)
        publisher.publish(1, 42, 0, 1, weights)
        publish_until(publisher, lambda: publisher.confirmed)
        assert get_weights(reader, None) == (1, 42, weights)
        assert first.end(signal.SIGKILL) == -signal.SIGKILL

    with running(tmp_path / "run", port=first.port) as second:
        late = WeightsClient(context, second.endpoint, run_id="pong", contract=second.contract)
        publish_until(publisher, lambda: second.metrics()["herd_paramserver_versions_total", ()] == 1)
        assert get_weights(late, None) == (1, 42, weights)
        # Who has it already is not given it again, and gets the next one.
        reader.request((1, 42))
        until(lambda: reader.poll() is None and not reader.pending)
        assert reader.held == (1, 42)
        publisher.publish(1, 43, 0, 1, b"new")
        publish_until(publisher, lambda: publisher.confirmed)
        assert get_weights(reader, (1, 42)) == (1, 43, b"new")
        for socket_owner in (publisher, reader, late):
            socket_owner.close()


def test_a_learner_that_went_back_is_told_to_open_a_lineage(server: Server, context: Context) -> None:
    before = WeightsPublisher(context, server.endpoint, run_id="pong", contract=server.contract)
    before.publish(1, 500, 0, 1, b"trained")
    publish_until(before, lambda: before.confirmed)
    after = WeightsPublisher(context, server.endpoint, run_id="pong", contract=server.contract)
    after.publish(1, 400, 0, 1, b"restored")
    publish_until(after, lambda: after.newer_lineage is not None)
    assert after.newer_lineage == 1
    after.publish(2, 400, 0, 1, b"restored")
    publish_until(after, lambda: after.confirmed)
    reader = WeightsClient(context, server.endpoint, run_id="pong", contract=server.contract)
    assert get_weights(reader, (1, 500)) == (2, 400, b"restored")
    assert server.metrics()["herd_paramserver_stale_publishes_total", ()] == 1
    for socket_owner in (before, after, reader):
        socket_owner.close()


def test_an_index_is_free_again_when_its_holder_falls_silent(server: Server, connect: Connect) -> None:
    client = connect(server)

    def lease(holder: str) -> int:
        message = client.ask(LeaseIndex(request_id=1, run_id="pong", holder=holder, agent=None, index=None))
        assert isinstance(message, IndexLeased)
        assert message.lease_seconds == 2.0
        return message.index

    assert [lease("first"), lease("second"), lease("first")] == [0, 1, 0]
    assert server.metrics()["herd_paramserver_leased_indices", ()] == 2
    until(lambda: server.metrics()["herd_paramserver_leased_indices", ()] == 0)
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
        (["--paramserver.port", "0", "--paramserver.upstream", "root:PORT"], "paramserver.upstream"),
        (["--paramserver.port", "PORT", "--paramserver.upstream", "tcp://127.0.0.1:PORT"], "this parameter server's own address"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(server: Server, tmp_path: Path, words: list[str], line: str) -> None:
    port = str(server.port)
    command = [sys.executable, "-m", "herd_paramserver", "--run_dir", str(tmp_path / "other")]
    done = subprocess.run([*command, *(word.replace("PORT", port) for word in words)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert line.replace("PORT", port) in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_it_runs_where_torch_is_not_installed() -> None:
    script = "import sys, herd_paramserver.server; print(sorted({'torch', 'ale_py', 'gymnasium'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
