"""Several connections with one name: the newest counts, and a name proves nothing by itself."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from herd.cli.keys import make_keys
from herd.config.run import SecuritySettings
from herd.transport import Client, Limits, Peer, Server
from herd.transport.context import Context, Poller
from herd.transport.routes import MAX_NAME_BYTES, Routes
from tests.server_process import until

DEADLINE_SECONDS = 60.0
MEBIBYTE = 1 << 20
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)

ACTOR = Peer(b"actor")


def route(number: int) -> bytes:
    return b"\0" + (number % 2**32).to_bytes(4)


def test_the_newest_connection_of_a_name_is_used() -> None:
    routes = Routes()
    assert routes.heard(route(7), ACTOR)
    assert routes.heard(route(9), ACTOR)
    assert not routes.heard(route(7), ACTOR)
    assert routes.route_to(ACTOR) == route(9)


def test_connection_numbers_may_wrap_around() -> None:
    routes = Routes()
    routes.heard(route(2**32 - 1), ACTOR)
    assert routes.heard(route(1), ACTOR)
    assert not routes.heard(route(2**32 - 1), ACTOR)


@pytest.mark.parametrize("claimed", [b"", b"\0", b"own identity", bytes(6), bytes(300)])
def test_an_invented_routing_id_does_not_replace_a_connection(claimed: bytes) -> None:
    routes = Routes()
    routes.heard(route(7), ACTOR)
    assert not routes.heard(claimed, ACTOR)
    assert routes.route_to(ACTOR) == route(7)


def test_a_connection_without_a_name_is_known_by_its_routing_id() -> None:
    assert Routes().route_to(Peer(b"anything")) == b"anything"


def test_invented_names_evict_the_least_recently_heard_ones() -> None:
    routes = Routes(max_routes=3)
    for number in range(100):
        routes.heard(route(number), Peer(b"stranger %d" % number))
        routes.heard(route(5), Peer(b"honest"))
    assert len(routes) == 3
    assert routes.route_to(Peer(b"honest")) == route(5)


# -- with real sockets


@pytest.fixture
def router() -> Iterator[Server]:
    with Context() as context, context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=MEBIBYTE)) as made:
        yield made


def heard(router: Server) -> tuple[Peer, list[bytes]]:
    """Return the next message."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (received := router.receive()) is None:
        assert time.monotonic() < deadline
        Poller(router).poll(0.05)
    return received[0], [bytes(frame) for frame in received[1]]


def test_only_the_newest_connection_of_a_name_is_served(router: Server) -> None:
    with Context() as context, dial(context, router) as older:
        until(lambda: older.send([b"first"]))
        assert heard(router) == (Peer(b"same"), [b"first"])
        with dial(context, router) as newer:
            until(lambda: newer.send([b"second"]))
            assert heard(router) == (Peer(b"same"), [b"second"])
            assert router.send(Peer(b"same"), [b"answer"])
            assert newer.wait(DEADLINE_SECONDS)
            assert newer.receive() is not None
            assert older.send([b"late"])
            until(lambda: newer.send([b"third"]))
            assert heard(router) == (Peer(b"same"), [b"third"])
            assert older.receive() is None


def dial(context: Context, router: Server) -> Client:
    return context.client(router.endpoint, "same", Limits(max_frame_bytes=MEBIBYTE))


@pytest.mark.parametrize(
    ("name", "is_one"),
    [(b"\xff\xfe", False), (b"", False), (b"x" * (MAX_NAME_BYTES + 1), False), (b"x" * MAX_NAME_BYTES, True), (b"actor/0/7", True)],
)
def test_any_claimed_peer_name_is_accepted_or_ignored(router: Server, name: bytes, *, is_one: bool) -> None:
    with socket.create_connection(("127.0.0.1", int(router.endpoint.rpartition(":")[2])), timeout=DEADLINE_SECONDS) as peer:
        properties = {b"Socket-Type": b"DEALER", b"X-Herd-Peer": name}
        body = b"\x05READY" + b"".join(bytes([len(key)]) + key + struct.pack(">I", len(value)) + value for key, value in properties.items())
        peer.sendall(GREETING + b"\x06" + struct.pack(">Q", len(body)) + body)
        received = b""
        while b"READY" not in received:
            received += peer.recv(1000)
        peer.sendall(b"\x00\x02hi")
        said_by, frames = heard(router)
        assert frames == [b"hi"]
        assert (said_by.name == name) is is_one
        assert len(said_by.name) <= MAX_NAME_BYTES
        assert router.send(said_by, [b"answer"])


def test_a_name_under_another_key_takes_no_route(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_keys(keys)
    for name in ("actor", "viewer"):
        make_keys(keys, client=name)
    with ExitStack() as stack:
        contexts = {
            name: stack.enter_context(Context(SecuritySettings(curve_keys=keys, curve_client=name), {})) for name in ("actor", "viewer")
        }
        router = stack.enter_context(contexts["actor"].server("tcp://127.0.0.1:*", Limits(max_frame_bytes=MEBIBYTE)))
        actor = stack.enter_context(dial(contexts["actor"], router))
        until(lambda: actor.send([b"first"]))
        actors, _ = heard(router)
        viewer = stack.enter_context(dial(contexts["viewer"], router))
        until(lambda: viewer.send([b"second"]))
        viewers, _ = heard(router)
        assert router.send(actors, [b"answer"])
        until(lambda: actor.receive() == [b"answer"])
        assert viewer.receive() is None
        assert actor.send([b"third"])
        assert heard(router) == (actors, [b"third"])
        assert viewers != actors
