"""A run with a token and without keys: only clients with the token are admitted, and waiting clients cost only kilobytes."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs

from herd.config.encryption_keys import RUN_TOKEN_VARIABLE
from herd.transport import Client, Limits, Server
from herd.transport.connections import GREETING_BYTES
from herd.transport.context import Context, Poller

DEADLINE_SECONDS = 60.0
MEBIBYTE = 1 << 20


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def context_of(stack: ExitStack, token: str | None) -> Context:
    return stack.enter_context(Context(None, {} if token is None else {RUN_TOKEN_VARIABLE: token}))


def serve(stack: ExitStack, token: str | None) -> tuple[Context, Server]:
    context = context_of(stack, token)
    return context, stack.enter_context(context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=MEBIBYTE)))


def dial(stack: ExitStack, router: Server, token: str | None) -> Client:
    return stack.enter_context(context_of(stack, token).client(router.endpoint, "peer", Limits(max_frame_bytes=MEBIBYTE)))


def until(condition: Callable[[], bool], router: Server, *dealers: Client) -> None:
    poller = Poller(router, *dealers)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        poller.poll(0.02)
        router.receive()
        for dealer in dealers:
            dealer.receive()


def test_a_client_with_the_token_is_admitted(stack: ExitStack) -> None:
    context, router = serve(stack, "secret")
    dealer = dial(stack, router, "secret")
    until(lambda: dealer.send([b"hello", bytes(MEBIBYTE)]), router, dealer)
    until(lambda: router.bytes_in == 5 + MEBIBYTE, router, dealer)
    assert context.refusals.count("unknown_key") == context.refusals.count("mechanism") == 0


@pytest.mark.parametrize(
    ("server", "client", "reason"), [("secret", "guess", "unknown_key"), ("secret", None, "mechanism"), (None, "secret", "mechanism")]
)
def test_clients_with_another_token_or_mechanism_are_refused(
    stack: ExitStack, caplog: pytest.LogCaptureFixture, server: str, client: str | None, reason: str
) -> None:
    caplog.set_level(logging.DEBUG)
    logged = stack.enter_context(capture_logs())
    context, router = serve(stack, server)
    dealer = dial(stack, router, client)
    # If both sides have no mechanism in common, the second one to notice finds the connection closed.
    until(lambda: context.refusals.count(reason) + context.refusals.count("incomplete") > 0, router, dealer)
    until(lambda: dealer.trouble is not None, router, dealer)
    assert not dealer.send([b"hello"])
    assert router.bytes_in == 0
    assert any("token" in line["event"] for line in logged)
    said = caplog.text + str(logged)
    assert "secret" not in said
    assert "guess" not in said


def test_clients_without_the_token_have_a_low_unread_limit(stack: ExitStack) -> None:
    _, router = serve(stack, "secret")
    honest = dial(stack, router, "secret")
    until(lambda: honest.send([b"hello"]), router, honest)
    port = int(router.endpoint.rpartition(":")[2])
    stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS))
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"PLAIN".ljust(20, b"\0") + bytes(32)
    stranger.sendall(greeting + b"\x06" + MEBIBYTE.to_bytes(8, "big") + bytes(GREETING_BYTES + 1000))
    until(lambda: router.connections.num_cut["unread"] == 1, router, honest)
    until(lambda: honest.send([bytes(MEBIBYTE)] * 2), router, honest)
    until(lambda: router.bytes_in == 5 + 2 * MEBIBYTE, router, honest)
    assert router.connections.num_cut["unread"] == 1


def test_no_client_is_admitted_without_the_authenticator(stack: ExitStack) -> None:
    context, router = serve(stack, "secret")
    transport: Any = context._transport("tcp://")
    transport._guard.close()
    dealer = dial(stack, router, "secret")
    until(
        lambda: context.refusals.count("incomplete") + context.refusals.count("protocol") > 0 or dealer.trouble is not None, router, dealer
    )
    assert not dealer.send([b"hello"])
