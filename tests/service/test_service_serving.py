"""The code around a server's socket and process, over real sockets and HTTP."""

from __future__ import annotations

import io
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from herd.config.run import RunSettings
from herd.protocols.replay.messages import REPLAY, Inserted, SampleEpisode, StoredEpisodes
from herd.rpc.codec import MalformedMessage, encode
from herd.rpc.serving import Received, Reply, ServedRun
from herd.service import inbox
from herd.service.identity import Endpoint, Identity
from herd.service.inbox import Inbox, RequestInbox, ServerMeters, serve
from herd.service.process import ServiceProcess
from herd.service.startup import BadInputError
from herd.telemetry import Telemetry
from herd.telemetry.scrape import Samples, scrape, total
from herd.transport import Frame, Limits, Peer
from herd.transport.context import Context, Poller

SECONDS = 30.0


class Serving:
    """A ROUTER with one client."""

    def __init__(self, context: Context) -> None:
        self.router = context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=1 << 16))
        self.client = context.client(self.router.endpoint, "test/1", Limits(max_frame_bytes=1 << 16))
        self.telemetry = Telemetry("paramserver", "run")
        self.meters = ServerMeters(self.telemetry)
        self.meters.watch_clients(self.router, context.refusals)
        self.meters.watch_bytes("weights", self.router)

    def send(self, *messages: bytes) -> None:
        """Send the messages, and wait until the last one has arrived."""
        for message in messages:
            while not self.client.send([message]):
                Poller(self.client).poll(0.01)

    def inbox(self, handle: Callable[[bytes, Sequence[memoryview]], None], **options: object) -> Inbox:
        return Inbox(self.router, handle, self.meters, **options)  # type: ignore[arg-type]

    def serve_until(self, inbox: Inbox, done: Callable[[], bool]) -> None:
        poller = Poller(self.router)
        for _ in range(int(SECONDS / 0.1)):
            poller.poll(0.1)
            inbox.serve_waiting()
            if done():
                return
        pytest.fail("nothing arrived")

    def samples(self) -> Samples:
        port = self.telemetry.port or self.telemetry.serve("127.0.0.1", 0)
        return scrape(f"http://127.0.0.1:{port}/metrics")


@pytest.fixture
def server() -> Iterator[Serving]:
    with Context() as context:
        made = Serving(context)
        yield made
        made.telemetry.close()


def test_malformed_messages_and_errors_of_the_handler_are_counted(server: Serving, log: io.StringIO) -> None:
    taken: list[bytes] = []

    def handle(_peer: bytes, frames: Sequence[memoryview]) -> None:
        if frames[0] == b"bad":
            raise MalformedMessage("what a stranger says", "header")
        if frames[0] == b"bug":
            raise KeyError("an error of the handler")
        taken.append(bytes(frames[0]))

    server.send(b"one", b"bad", b"bug", b"two")
    server.serve_until(server.inbox(handle), lambda: len(taken) == 2)
    assert taken == [b"one", b"two"]
    samples = server.samples()
    assert total(samples, "herd_wire_malformed_messages_total", reason="header") == 1
    assert total(samples, "herd_wire_malformed_messages_total", reason="other") == 1
    assert "KeyError: 'an error of the handler'" in log.getvalue()
    assert total(samples, "herd_wire_received_bytes_total", stream="weights") == 12
    assert total(samples, "herd_wire_connections") == 1


class Waiting:
    """Stands in for a socket with these messages, of which the last one comes again and again if it is endless."""

    def __init__(self, *messages: Frame, is_endless: bool = False) -> None:
        self.messages = list(messages)
        self.is_endless = is_endless
        self.sent: list[Frame] = []
        self.trusted: list[Frame] = []
        """Messages whose sender was introduced."""

    def receive(self) -> tuple[Peer, list[memoryview]] | None:
        if not self.messages:
            return None
        self.newest = self.messages[0] if self.is_endless else self.messages.pop(0)
        return Peer(b"peer"), [memoryview(self.newest)]

    def send(self, _peer: Peer, frames: Sequence[Frame]) -> None:
        self.sent.append(frames[0])

    def trust(self, _peer: Peer) -> None:
        self.trusted.append(self.newest)


def test_a_request_that_fails_in_the_handler_is_refused_and_the_next_one_answered() -> None:
    def answer(received: Received) -> Reply:
        if received.message.id == 1:
            raise ZeroDivisionError
        return Reply(Inserted(id=received.message.id, sequence=1, stored=StoredEpisodes(num_episodes=0, num_unrolls=0, num_steps=0)))

    telemetry = Telemetry("replay", "run")
    router = Waiting(*(encode(SampleEpisode(id=number, run="run", contract="c"))[0] for number in (1, 2)))
    run = ServedRun("--replay", "run", "c", range(1))
    RequestInbox(router, REPLAY, run, answer, ServerMeters(telemetry), clock=lambda: 0.0).serve_waiting()  # type: ignore[arg-type]
    assert [(message.type, message.id) for message in map(REPLAY.decode, router.sent)] == [("refused", 1), ("inserted", 2)]


def test_a_burst_is_limited_in_messages_and_time() -> None:
    full = Waiting(b"", is_endless=True)
    now, taken = [0.0], [0]

    def handle(_peer: bytes, _frames: Sequence[memoryview]) -> None:
        taken[0] += 1
        now[0] += 0.2

    meters = ServerMeters(Telemetry("paramserver", "run"))
    Inbox(full, handle, meters, max_burst=2, clock=lambda: now[0]).serve_waiting()  # type: ignore[arg-type]
    assert taken == [2]
    Inbox(full, handle, meters, clock=lambda: now[0]).serve_waiting()  # type: ignore[arg-type]
    assert taken == [2 + 3]  # three times 0.2 s exceed half a second


def test_only_accepted_messages_introduce_a_connection() -> None:
    def handle(_peer: bytes, frames: Sequence[memoryview]) -> bool | None:
        if frames[0] == b"malformed":
            raise MalformedMessage("what a stranger says", "header")
        return {b"refused": False, b"taken": True}.get(bytes(frames[0]))

    router = Waiting(b"malformed", b"refused", b"taken", b"nothing said")
    Inbox(router, handle, ServerMeters(Telemetry("paramserver", "run"))).serve_waiting()  # type: ignore[arg-type]
    assert router.trusted == [b"taken", b"nothing said"]


def test_the_main_loop_runs_until_the_stop_request(server: Serving) -> None:
    class Stop:
        turns = 0

        def __bool__(self) -> bool:
            return self.turns == 3

    stop = Stop()

    def turn() -> None:
        stop.turns += 1

    server.telemetry.set_ready(True)
    before = server.telemetry.heartbeat_age_seconds
    serve(stop, server.telemetry, [server.router], turn, lambda: 0.0)  # type: ignore[arg-type]
    assert stop.turns == 3
    assert server.telemetry.heartbeat_age_seconds < max(before, inbox.POLL_SECONDS)
    assert server.telemetry._readyz().status == 503


@pytest.fixture
def settings(tmp_path: Path) -> RunSettings:
    sections = {"env": {"suite": "catch", "tasks": ["catch"]}, "network": {"torso": "mlp"}}
    return RunSettings.model_validate({"run_dir": tmp_path, **sections})


@pytest.fixture
def _logging() -> Iterator[None]:
    """A process sets up the root logger; restore it afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_logging")
def test_a_process_is_announced_and_releases_its_port(settings: RunSettings, tmp_path: Path) -> None:
    with ServiceProcess("bandit", settings, Identity()) as process:
        process.serve_metrics()
        process.announce("listening")
        port = process.telemetry.port
        assert f'"metrics_port": {port}' in (tmp_path / "processes" / "bandit-0.json").read_text()
        assert scrape(f"http://127.0.0.1:{port}/metrics")
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.usefixtures("_logging")
def test_unusable_tasks_and_ports_are_bad_input(settings: RunSettings) -> None:
    with pytest.raises(BadInputError, match="nothere"):
        ServiceProcess("actor", settings.model_copy(update={"env": settings.env.model_copy(update={"tasks": ("nothere",)})}), Identity())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        identity = Identity(metrics=Endpoint(port=taken.getsockname()[1]))
        with (
            ServiceProcess("bandit", settings, identity) as process,
            pytest.raises(BadInputError, match="cannot serve metrics"),
        ):
            process.serve_metrics()
