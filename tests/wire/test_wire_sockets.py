from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from herd.transport import AddressInUse, Client, Limits, Peer, Server
from herd.transport.context import Context, Poller, Waker

DEADLINE_SECONDS = 20.0
_T = TypeVar("_T")


def bind(context: Context, endpoint: str = "tcp://127.0.0.1:*", *, max_frame_bytes: int = 1 << 20, high_water_mark: int = 16) -> Server:
    return context.server(endpoint, Limits(max_frame_bytes=max_frame_bytes, high_water_mark=high_water_mark))


def dial(context: Context, endpoint: str, routing_id: str = "peer", *, high_water_mark: int = 16) -> Client:
    return context.client(endpoint, routing_id, Limits(max_frame_bytes=1 << 20, high_water_mark=high_water_mark))


def until(condition: Callable[[], bool], poller: Poller) -> None:
    """Call ``condition`` until it holds, waking up for every message."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        poller.poll(0.02)


def exchange(router: Server, dealer: Client, parts: list[bytes]) -> list[bytes]:
    """Send ``parts`` to the router and back; returns what the dealer receives."""
    poller = Poller(router, dealer)
    until(lambda: dealer.send(parts), poller)
    while (received := router.receive()) is None:
        assert router in poller.poll(DEADLINE_SECONDS)
    peer, frames = received
    assert [bytes(frame) for frame in frames] == parts
    assert router.send(peer, [bytes(frame) for frame in frames])
    assert dealer.wait(DEADLINE_SECONDS)
    answer = dealer.receive()
    assert answer is not None
    return [bytes(frame) for frame in answer]


def test_messages_are_exchanged_and_their_bytes_counted(context: Context) -> None:
    parts = [b"header", b"", bytes(200_000)]  # copied, empty, and too large to be copied
    with bind(context) as router, dial(context, router.endpoint) as dealer:
        assert exchange(router, dealer, parts) == parts
        assert dealer.receive() is None
        assert router.receive() is None
        assert dealer.bytes_out == dealer.bytes_in == 200_006
        assert router.bytes_in == 200_006


def test_a_bound_endpoint_is_in_use(context: Context) -> None:
    with bind(context) as router, pytest.raises(AddressInUse, match=router.endpoint):
        bind(context, router.endpoint)


def test_invalid_endpoints_raise_os_error(context: Context) -> None:
    with pytest.raises(OSError, match="nonsense"):
        bind(context, "nonsense")
    with pytest.raises(OSError, match="nonsense"):
        dial(context, "nonsense")


def test_without_a_connection_nothing_is_queued(context: Context) -> None:
    with bind(context) as router:
        assert not router.send(Peer(b"nobody"), [b"x"])
    with socket.socket() as reserved:  # bound and not listening
        reserved.bind(("127.0.0.1", 0))
        with dial(context, f"tcp://127.0.0.1:{reserved.getsockname()[1]}") as dealer:
            assert not dealer.send([b"x"])
            assert not dealer.wait(0.0)


def test_send_queues_are_bounded(context: Context) -> None:
    with bind(context, high_water_mark=2) as router, dial(context, router.endpoint, high_water_mark=2) as dealer:
        until(lambda: dealer.send([b"x"]), Poller(router))
        # Messages of 1 MiB: the kernel's buffers hold only a few, and the messages are not read.
        sent = sum(dealer.send([bytes(1 << 20)]) for _ in range(200))
        assert sent < 100


def test_an_oversized_frame_closes_only_its_connection(context: Context) -> None:
    with bind(context) as router, dial(context, router.endpoint, "good") as good, dial(context, router.endpoint, "bad") as bad:
        poller = Poller(router, good)
        until(lambda: bad.send([b"x", bytes((1 << 20) + 1)]), poller)
        received: set[bytes] = set()

        def arrived(header: bytes, dealer: Client) -> bool:
            dealer.send([header])
            while (message := router.receive()) is not None:
                received.add(bytes(message[1][0]))
            return header in received

        until(lambda: arrived(b"small", bad), poller)  # over the connection that replaces the closed one
        until(lambda: arrived(b"good", good), poller)
        assert received == {b"small", b"good"}


def test_a_closed_socket_neither_sends_nor_receives(context: Context) -> None:
    router = bind(context)
    dealer = dial(context, router.endpoint)
    for each in (router, dealer):
        each.close()
        each.close()
    assert not dealer.send([b"x"])
    assert dealer.receive() is None
    assert not router.send(Peer(b"peer"), [b"x"])


def test_a_waker_wakes_a_poller_from_another_thread(context: Context) -> None:
    waker = Waker()
    with bind(context) as router:
        poller = Poller(router, waker)
        assert poller.poll(0.0) == set()
        thread = threading.Thread(target=waker.wake)
        thread.start()
        assert poller.poll(DEADLINE_SECONDS) == {waker}
        thread.join()
        for _ in range(100_000):  # far more than the pipe holds, but it never blocks
            waker.wake()
        assert poller.poll(0.0) == {waker}
        waker.clear()
        assert poller.poll(0.0) == set()
        waker.wake()
        poller.unregister(waker)
        assert poller.poll(0.0) == set()
    waker.close()
    waker.wake()  # there is no poller to wake


def eventually(step: Callable[[], _T | None]) -> _T:
    """Return the first result of ``step`` that is true."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (result := step()):
        assert time.monotonic() < deadline, "nothing came"
    return result


def test_a_client_that_reads_each_answer_gets_every_one(context: Context) -> None:
    """libzmq counts what was read about once a millisecond, so that the queue of a quick client seemed full after two to four answers."""
    with bind(context, high_water_mark=2) as router, dial(context, router.endpoint) as dealer:
        for number in range(2000):
            request = [b"%d" % number]
            eventually(partial(dealer.send, request))
            received = eventually(router.receive)
            assert router.send(received[0], [b"answer", *received[1]]), number
            eventually(dealer.receive)
