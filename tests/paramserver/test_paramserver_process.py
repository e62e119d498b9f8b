"""The parameter server from outside, with real sockets over loopback and real signals."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from herd.protocols.weights.messages import NotModified, Published, Weights
from herd.transport.context import Context
from tests.paramserver.server_processes import Client, Server
from tests.server_process import ANSWER_SECONDS, connecting

pytestmark = pytest.mark.processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


Connect = Callable[[Server], Client]


@pytest.fixture
def connect(context: Context) -> Iterator[Connect]:
    with connecting(Client, context) as connect:
        yield connect


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "run") as started:
        yield started


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_with_exit_code_0(server: Server, number: int) -> None:
    assert server.end(number) == 0


def test_published_weights_reach_all_clients(server: Server, connect: Connect) -> None:
    payloads = [secrets.token_bytes(200_000), secrets.token_bytes(100)]
    publisher, client = connect(server), connect(server)
    assert client.get()[0] == NotModified(id=1, held=None)
    for index, payload in enumerate(payloads):
        assert publisher.publish(3, 14, payload, index=index, count=2) == Published(lineage=3, updates=14, index=index)
    for reader in (client, publisher, connect(server)):
        message, frames = reader.get((3, 13))
        assert isinstance(message, Weights)
        assert (message.lineage, message.updates) == (3, 14)
        assert [bytes(frame) for frame in frames] == payloads
    assert client.get((3, 14))[0] == NotModified(id=1, held=(3, 14))
    samples = server.metrics()
    assert samples["herd_paramserver_versions_total", ()] == 1
    assert samples["herd_paramserver_answers_total", (("answer", "weights"),)] == 3
    assert samples["herd_paramserver_answers_total", (("answer", "not_modified"),)] == 2
    assert samples["herd_paramserver_weights_bytes", ()] == 200_100
    assert (samples["herd_weights_lineage", ()], samples["herd_weights_updates", ()]) == (3, 14)
    assert samples["herd_wire_sent_bytes_total", (("stream", "weights"),)] > 3 * 200_100
    assert 0 <= samples["herd_weights_age_seconds", ()] < ANSWER_SECONDS


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--listen", "127.0.0.1:PORT"], "--listen 127.0.0.1:PORT: "),
        (["--metrics", "127.0.0.1:PORT"], "cannot serve metrics on 127.0.0.1:PORT"),
        (["--paramserver", "127.0.0.1:PORT"], "--paramserver: should be tcp://"),
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
