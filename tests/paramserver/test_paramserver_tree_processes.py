"""Root and replicas in processes of their own, killed and stopped."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from herd.wire.messages import NotModified, Weights
from herd.wire.sockets import Context, new_context
from herd.wire.weights_client import WeightsPublisher
from tests.paramserver.server_processes import ANSWER_SECONDS, Client, Server, publish_until, running, until

pytestmark = pytest.mark.processes


@pytest.fixture
def context() -> Iterator[Context]:
    with new_context() as made:
        yield made


def silence(server: Server) -> float:
    return server.metrics()["herd_paramserver_upstream_silence_seconds", ()]


def test_a_replica_serves_through_a_stopped_and_a_killed_root(tmp_path: Path, context: Context) -> None:
    weights = secrets.token_bytes(300_000)
    with running(tmp_path / "root") as root, running(tmp_path / "replica", upstream=root.endpoint) as replica:
        publisher = WeightsPublisher(context, root.endpoint, run_id="pong", contract=root.contract)
        client = Client(context, replica)
        assert client.get()[0] == NotModified(request_id=1, held=None)
        assert replica.readiness().startswith("not ready: no weights yet; the parent ")

        publisher.publish(1, 42, 0, 1, weights)
        publish_until(publisher, lambda: publisher.confirmed and replica.readiness().startswith("ok: serves version (1, 42)"))

        root.process.send_signal(signal.SIGSTOP)
        until(lambda: silence(replica) > 2.0)
        message, frames = client.get((1, 41))
        assert isinstance(message, Weights)
        assert b"".join(frames) == weights
        assert replica.readiness().startswith("ok")
        root.process.send_signal(signal.SIGCONT)
        publisher.publish(1, 43, 0, 1, b"after the stop")
        publish_until(publisher, lambda: client.get((1, 42))[0].type == "weights")
        assert silence(replica) < 2.0

        assert root.end(signal.SIGKILL) == -signal.SIGKILL
        assert client.get()[1] == [b"after the stop"]
        with running(tmp_path / "root", port=root.port) as second:
            # The publisher finds the root empty and gives it again what it has; the replica had it all the time.
            publish_until(publisher, lambda: second.metrics()["herd_paramserver_versions_total", ()] == 1)
            assert client.get((1, 43))[0] == NotModified(request_id=1, held=(1, 43))
            publisher.publish(2, 0, 0, 1, b"restored")
            publish_until(publisher, lambda: client.get((1, 43))[0].type == "weights")
            assert client.get()[1] == [b"restored"]
            assert replica.end(signal.SIGTERM) == 0
        publisher.close()
        client.dealer.close()


def test_a_replica_of_itself_ends_with_one_clear_last_line(tmp_path: Path) -> None:
    with running(tmp_path / "probe") as probe:
        port = probe.port
    words = ["--run_dir", str(tmp_path), "--paramserver.port", str(port), "--paramserver.upstream", f"tcp://localhost:{port}"]
    command = [sys.executable, "-m", "herd_paramserver", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * ANSWER_SECONDS, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        f"paramserver: paramserver.upstream: tcp://localhost:{port} is this parameter server itself"
    )
