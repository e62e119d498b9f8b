"""The proxy that disturbs links: what it forwards, what it holds back, and that its memory is bounded."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from benchmarks.soak.proxy import HOST, Proxy
from tests.server_process import until

WAIT_SECONDS = 30.0


class Echo:
    """A server that answers every connection with its name, and then echoes what it receives."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(self._name)
                while data := connection.recv(65_536):
                    connection.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    with closing(Echo(b"a")) as server:
        yield server


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with closing(Proxy(echo.port)) as proxy:
        yield proxy


def connected(proxy: Proxy, name: bytes = b"a") -> socket.socket:
    client = socket.create_connection((HOST, proxy.port), WAIT_SECONDS)
    client.settimeout(WAIT_SECONDS)
    assert client.recv(1) == name
    return client


def received(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = client.recv(size - len(data))
        assert piece, f"the connection ended after {len(data)} of {size} bytes"
        data += piece
    return data


def is_reachable(proxy: Proxy) -> bool:
    try:
        with socket.create_connection((HOST, proxy.port), WAIT_SECONDS) as client:
            client.settimeout(WAIT_SECONDS)
            return client.recv(1) == b"a"
    except ConnectionError:
        return False


def is_broken(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_all_bytes_pass_unchanged_in_both_directions(proxy: Proxy) -> None:
    sent = bytes(range(256)) * 4096  # a megabyte is many times the buffer
    with connected(proxy) as client:
        writer = threading.Thread(target=client.sendall, args=(sent,))
        writer.start()
        assert received(client, len(sent)) == sent
        writer.join(WAIT_SECONDS)
    until(lambda: proxy.bytes_forwarded == 2 * len(sent) + 1)  # bytes are counted after they were forwarded


def test_a_cut_link_refuses_connections_until_it_is_restored(proxy: Proxy) -> None:
    with connected(proxy) as client:
        proxy.cut()
        assert is_broken(client)
    assert not is_reachable(proxy)
    proxy.forward()
    connected(proxy).close()


def test_a_stalled_link_holds_data_back_without_loss(proxy: Proxy) -> None:
    with connected(proxy) as client:
        proxy.stall()
        client.settimeout(0.2)
        with socket.create_connection((HOST, proxy.port), WAIT_SECONDS) as late:  # new connections are still accepted
            client.sendall(b"held")
            with pytest.raises(TimeoutError):
                client.recv(1)
            late.settimeout(0.2)
            with pytest.raises(TimeoutError):
                late.recv(1)
            proxy.forward()
            client.settimeout(WAIT_SECONDS)
            late.settimeout(WAIT_SECONDS)
            assert received(client, 4) == b"held"
            assert late.recv(1) == b"a"


def test_a_deaf_link_delivers_requests_but_no_answers(proxy: Proxy) -> None:
    with connected(proxy) as client:
        proxy.deafen()
        forwarded = proxy.bytes_forwarded
        client.sendall(b"heard")
        until(lambda: proxy.bytes_forwarded >= forwarded + 5)
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        proxy.reset()
        client.settimeout(WAIT_SECONDS)
        assert is_broken(client)  # the answers are lost
    connected(proxy).close()


def test_resetting_a_slow_link_loses_data_in_flight(proxy: Proxy) -> None:
    with connected(proxy) as client:
        proxy.slow(10.0)
        client.sendall(bytes(1000))
        proxy.reset()
        assert is_broken(client)
    connected(proxy).close()


def test_a_slow_link_keeps_its_rate(proxy: Proxy) -> None:
    sent = bytes(20_000)
    with connected(proxy) as client:
        proxy.slow(20_000.0)
        started = time.monotonic()
        writer = threading.Thread(target=client.sendall, args=(sent,))
        writer.start()
        assert received(client, len(sent)) == sent
        writer.join(WAIT_SECONDS)
        # Both directions together run at 20 kB/s, so sending and receiving take two seconds.
        assert time.monotonic() - started > 1.5
        proxy.forward()
        client.sendall(sent)
        assert received(client, len(sent)) == sent


def test_unread_data_blocks_the_sender(proxy: Proxy) -> None:
    """Data that is not read stays with the sender, except for a few buffers here and in the kernel."""
    with connected(proxy) as client:
        client.setblocking(False)
        idle_since, sent = time.monotonic(), 0
        while time.monotonic() - idle_since < 0.5 and sent < 1 << 26:
            try:
                sent += client.send(bytes(1 << 20))
                idle_since = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
        assert sent < 1 << 26  # sending stopped: on loopback the kernel buffers less than ten megabytes
