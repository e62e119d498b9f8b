"""Runs a server in a separate process, started as a user starts it, and clients controlled by hand."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, Self, TypeVar

from herd.components.suites import environment_spec
from herd.config.loading import dump_settings
from herd.config.run import RunSettings
from herd.config.run_contract import contract_digest
from herd.rpc.codec import Conversation, encode
from herd.rpc.envelope import Message
from herd.service.identity import Identity
from herd.telemetry.scrape import Samples, scrape, total
from herd.transport import Limits
from herd.transport.context import Context
from tests.patience import patient

ANSWER_SECONDS = patient(60.0)
ANYWHERE = Identity()
"""Any free port of this machine."""


class ServerProcess:
    """Runs ``python -m herd_<service>`` with ``settings``; ready when it listens. As a context manager, it kills the process at the end."""

    def __init__(self, service: str, settings: RunSettings, identity: Identity = ANYWHERE, *, through: Sequence[str] = ()) -> None:
        """``through``: a module and its arguments that start the service's module, and get its arguments."""
        self.settings = settings
        self.contract = contract_digest(settings, environment_spec(settings.env))
        settings.directory.mkdir(parents=True, exist_ok=True)
        config = settings.directory / "config.yaml"
        config.write_text(dump_settings(settings))
        self.process = subprocess.Popen(
            [sys.executable, "-m", *through, f"herd_{service}", "--config", str(config), *identity.words()],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.before: list[str] = []
        """Lines logged before the process listened."""
        for line in self.process.stderr:
            if "listening" in line:
                break
            self.before.append(line)
        else:
            self.__exit__()
            raise AssertionError("".join(self.before))
        self.port = int(found(r"endpoint=tcp://127\.0\.0\.1:(\d+)", line))
        self.metrics_port = int(found(r"metrics_port=(\d+)", line))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()

    @property
    def endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def metrics(self) -> Samples:
        return scrape(f"http://127.0.0.1:{self.metrics_port}/metrics")

    def total(self, name: str, **labels: str) -> float:
        return total(self.metrics(), name, **labels)

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(ANSWER_SECONDS)


class AskingClient:
    """A client controlled by hand, so that it can also send what our clients never send."""

    conversation: ClassVar[Conversation]

    def __init__(self, context: Context, server: ServerProcess) -> None:
        self.server = server
        self.dealer = context.client(server.endpoint, f"test/{secrets.token_hex(4)}", Limits(max_frame_bytes=1 << 26))

    def send(self, *frames: bytes | memoryview) -> None:
        until(lambda: self.dealer.send(frames))

    def receive(self) -> tuple[Message, list[memoryview]]:
        assert self.dealer.wait(ANSWER_SECONDS)
        frames = self.dealer.receive()
        assert frames is not None
        return self.conversation.decode(frames[0]), frames[1:]

    def ask(self, message: Message, *payloads: bytes) -> Message:
        self.send(*encode(message), *payloads)
        return self.receive()[0]


S = TypeVar("S", bound=ServerProcess)
C = TypeVar("C", bound=AskingClient)


@contextmanager
def connecting(make: Callable[[Context, S], C], context: Context) -> Iterator[Callable[[S], C]]:
    """Yields a function that makes clients; all of them are closed at the end."""
    clients: list[C] = []

    def connect(server: S) -> C:
        clients.append(make(context, server))
        return clients[-1]

    yield connect
    for client in clients:
        client.dealer.close()


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None, text
    return match.group(1)


def until(condition: Callable[[], object], seconds: float = ANSWER_SECONDS) -> None:
    """Poll for conditions that have no event to wait for, such as a new connection or another process's counter."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)
