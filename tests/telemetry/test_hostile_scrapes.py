"""Hostile clients at the metrics port hold connections, send slowly or send garbage; scrapes still succeed, and there are few threads."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from herd.telemetry import http_endpoint
from herd.telemetry.http_endpoint import HttpEndpoint, Reply
from herd.telemetry.scrape import scrape

MAX_CLIENTS = 8
DEADLINE_SECONDS = 60.0


@pytest.fixture
def endpoint(monkeypatch) -> Iterator[HttpEndpoint]:
    monkeypatch.setattr(http_endpoint, "MAX_CLIENTS", MAX_CLIENTS)
    # so that connections are closed only because there are too many
    monkeypatch.setattr(http_endpoint._Handler, "timeout", 10 * DEADLINE_SECONDS)
    made = HttpEndpoint("127.0.0.1", 0, {"/metrics": lambda _names: Reply.line(200, "herd_process_heartbeat_age_seconds 1.0")})
    yield made
    made.close()


def connect(endpoint: HttpEndpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", endpoint.port), timeout=DEADLINE_SECONDS)


def num_threads() -> int:
    return sum(thread.name.startswith("Thread-") for thread in threading.enumerate())


def test_half_open_connections_do_not_block_scrapes(endpoint: HttpEndpoint) -> None:
    before = num_threads()
    with contextlib.ExitStack() as strangers:
        held = [strangers.enter_context(connect(endpoint)) for _ in range(5 * MAX_CLIENTS)]
        for stranger in held[-MAX_CLIENTS:]:
            stranger.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        for _ in range(3):
            assert scrape(f"http://127.0.0.1:{endpoint.port}/metrics") == {("herd_process_heartbeat_age_seconds", ()): 1.0}
        assert held[0].recv(1) == b""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while num_threads() - before > MAX_CLIENTS:  # threads of closed connections may still be ending
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize(
    "garbage", [b"\0" * 1000, b"GET " + b"/" * 100_000, b"GET / HTTP/9.9\r\n\r\n", b"\xff\xfe\r\n\r\n", b"A: b\r\n" * 1000]
)
def test_garbage_is_answered_or_disconnected(endpoint: HttpEndpoint, garbage: bytes) -> None:
    with connect(endpoint) as stranger, contextlib.suppress(OSError):  # the server may hang up early
        stranger.sendall(garbage)
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(4096):
            pass
    assert scrape(f"http://127.0.0.1:{endpoint.port}/metrics")


def test_simultaneous_scrapes_are_queued_by_the_kernel() -> None:
    """The kernel must queue as many connections as are allowed; it used to refuse the sixth."""
    served = HttpEndpoint("127.0.0.1", 0, {})
    try:
        # For a listening socket, tcpi_sacked is the maximum number of connections that wait to be accepted.
        (most,) = struct.unpack_from("=I", served._server.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 28)
    finally:
        served.close()
    allowed = int(Path("/proc/sys/net/core/somaxconn").read_text())
    assert most == min(http_endpoint._Server.request_queue_size, allowed) > 5
