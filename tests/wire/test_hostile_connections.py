"""Connections that could exhaust memory or descriptors if only libzmq handled them."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import termios
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import pairwise

import pytest
from herd_learner.intake.io_thread import MESSAGES_PER_TURN

from herd.protocols.weights.messages import MAX_SLICES
from herd.service.inbox import MAX_BURST, Inbox, ServerMeters
from herd.telemetry import Telemetry
from herd.transport import Limits, Peer, Server
from herd.transport import connections as connections_module
from herd.transport import tcp as sockets_module
from herd.transport.connections import FRAME_OVERHEAD_BYTES, GREETING_BYTES, Connections, Probe, probe, shut
from herd.transport.context import Context, Poller
from tests.operations import assert_linear
from tests.server_process import until as wait_for

DEADLINE_SECONDS = 60.0
MEBIBYTE = 1 << 20
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


class Kernel:
    """Stands in for the kernel's knowledge of connections."""

    def __init__(self) -> None:
        self.open: dict[int, Probe] = {}
        self.shut: list[int] = []
        self.now = 0.0

    def table(self, *, max_connections: int = 3, max_unread_bytes: int = 1000, welcome_bytes: int = 0) -> Connections:
        return Connections(
            max_connections=max_connections,
            max_unread_bytes=max_unread_bytes,
            unread_bytes_each=0,
            welcome_bytes=welcome_bytes,
            probe=self.open.get,
            shut=lambda fd, _: self.shut.append(fd),
            clock=lambda: self.now,
        )

    def connect(self, table: Connections, descriptor: int, peer: str = "") -> None:
        self.open[descriptor] = Probe(peer or f"peer {descriptor}", 0)
        table.opened(descriptor)

    def receive(self, descriptor: int, total: int) -> None:
        self.open[descriptor] = self.open[descriptor]._replace(received=total)


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


def introduce(table: Connections, descriptor: int) -> None:
    """A message of this connection is accepted."""
    table.routed(descriptor, b"route %d" % descriptor)
    table.verified(b"route %d" % descriptor)


def test_a_full_table_closes_the_oldest_connection_not_introduced(kernel: Kernel) -> None:
    table = kernel.table()
    for descriptor in (1, 2, 3):
        kernel.connect(table, descriptor)
        table.delivered(descriptor, 10, 1)  # any client can send something
    introduce(table, 1)
    kernel.connect(table, 4)
    assert kernel.shut == [2]
    for descriptor in (3, 4):
        introduce(table, descriptor)
    kernel.connect(table, 5)  # all other connections have been verified
    assert kernel.shut == [2, 5]
    assert len(table) == 3
    assert table.num_cut == {"too_many": 2, "unread": 0}


def test_the_connection_with_most_unread_bytes_is_closed(kernel: Kernel) -> None:
    table = kernel.table()
    for descriptor, total in ((1, 400), (2, 500), (3, 100)):
        kernel.connect(table, descriptor)
        kernel.receive(descriptor, total)
    table.look()
    assert (table._unread_bytes, kernel.shut) == (1000, [])
    kernel.receive(3, 101)
    table.look()
    assert (kernel.shut, table.num_cut) == ([2], {"too_many": 0, "unread": 1})
    assert table._unread_bytes == 501


def test_unauthenticated_connections_have_a_low_unread_limit(kernel: Kernel) -> None:
    """Its limit does not depend on that of authenticated clients: the server has sent it a greeting, but has not admitted it."""
    table = kernel.table(max_unread_bytes=1 << 30, welcome_bytes=240)
    for descriptor in (1, 2, 3):
        kernel.connect(table, descriptor)
        kernel.receive(descriptor, GREETING_BYTES)
    kernel.open[1] = kernel.open[1]._replace(sent=300)
    kernel.open[2] = kernel.open[2]._replace(sent=234)
    table.look()
    assert kernel.shut == []
    for descriptor in (1, 2, 3):
        kernel.receive(descriptor, GREETING_BYTES + 1)
    table.look()
    assert (kernel.shut, table.num_cut["unread"]) == ([2, 3], 2)
    kernel.receive(1, 1 << 29)
    table.look()
    assert kernel.shut == [2, 3]


def test_delivered_messages_and_heartbeats_do_not_count_as_unread(kernel: Kernel) -> None:
    table = kernel.table()
    for descriptor in (1, 2, 3):
        kernel.connect(table, descriptor)
    for turn in range(1, 200):
        kernel.now = turn * 86_400.0
        kernel.receive(1, turn * 900)
        kernel.receive(2, turn * 3)  # a message takes 3 bytes on the wire
        kernel.receive(3, turn * 86_400 * 16 // 5)  # a day of heartbeats
        table.look()
        table.delivered(1, 900 - FRAME_OVERHEAD_BYTES, 1)
        table.delivered(2, 1, 1)
    assert (table._unread_bytes, kernel.shut) == (0, [])
    kernel.receive(2, 200 * 3 + 1100)  # the overhead that was assumed is no allowance
    table.look()
    assert kernel.shut == [2]


def test_a_reused_descriptor_counts_as_a_new_connection(kernel: Kernel) -> None:
    table = kernel.table()
    kernel.connect(table, 1, "before")
    kernel.receive(1, 900)
    table.look()
    kernel.connect(table, 1, "after")
    assert table._unread_bytes == 0
    kernel.open[1] = Probe("a third", 5000)  # the change was not reported
    table.look()
    assert (len(table), kernel.shut, table._unread_bytes) == (0, [], 0)


def test_every_connection_is_eventually_checked(kernel: Kernel, monkeypatch) -> None:
    monkeypatch.setattr(connections_module, "LOOKED_AT_ONCE", 2)
    table = kernel.table(max_connections=9, max_unread_bytes=100)
    for descriptor in range(6):
        kernel.connect(table, descriptor)
    kernel.receive(5, 101)
    for _ in range(3):
        table.look()
    assert kernel.shut == [5]


def test_probe_reads_a_real_connection_and_shut_closes_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            client.sendall(bytes(100))
            assert accepted.recv(100, socket.MSG_WAITALL | socket.MSG_PEEK) == bytes(100)
            assert probe(accepted.fileno()) == Probe(client.getsockname(), 100)
            shut(accepted.fileno(), ("127.0.0.1", 1))  # another peer's address: nothing happens
            client.settimeout(DEADLINE_SECONDS)
            accepted.sendall(b"still here")
            assert client.recv(10) == b"still here"
            shut(accepted.fileno(), client.getsockname())
            assert client.recv(10) == b""
            descriptor = accepted.fileno()
    assert probe(descriptor) is None


def is_reset(peer: socket.socket) -> bool:
    """Wait until the connection is reset. An orderly end would leave this side open, with the other side waiting for it."""
    poller = select.poll()
    poller.register(peer, 0)
    return any(events & select.POLLHUP for _, events in poller.poll(DEADLINE_SECONDS * 1000))


def test_shut_discards_unread_answers_in_the_kernel() -> None:
    """Neither answers that the peer did not read remain, nor does the kernel wait for the peer to close."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            accepted.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    accepted.send(bytes(MEBIBYTE))
            shut(accepted.fileno(), client.getsockname())
        assert is_reset(client)


# -- with real sockets


def until(condition: Callable[[], bool], router: Server) -> None:
    """Drive the server until ``condition`` holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        router.receive()
        time.sleep(0.01)  # the server checks connections every tenth of a second


def port_of(router: Server) -> int:
    return int(router.endpoint.rpartition(":")[2])


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def shake_hands(router: Server, identity: bytes = b"raw") -> socket.socket:
    """A raw peer that has completed ZMTP's handshake."""
    peer = socket.create_connection(("127.0.0.1", port_of(router)), timeout=DEADLINE_SECONDS)
    greet(peer, identity)
    return peer


def greet(peer: socket.socket, identity: bytes) -> None:
    """Do ZMTP's handshake on a new connection."""
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER\x08Identity" + struct.pack(">I", len(identity)) + identity
    peer.sendall(GREETING + b"\x04" + bytes([len(ready)]) + ready)
    received = b""
    while b"READY" not in received:
        received += peer.recv(1000)


def send_until_disconnected(peer: socket.socket, data: bytes, router: Server) -> int:
    """Send without blocking while driving the server; returns the number of bytes sent before it hung up."""
    peer.setblocking(False)
    deadline = time.monotonic() + DEADLINE_SECONDS
    rest = memoryview(data)
    while rest:
        assert time.monotonic() < deadline, "it neither reads nor hangs up"
        router.receive()
        try:
            rest = rest[peer.send(rest) :]
        except BlockingIOError:
            select.select([], [peer], [], 0.01)
        except (ConnectionResetError, BrokenPipeError):
            break
    return len(data) - len(rest)


def test_a_message_that_never_ends_is_cut_off(context: Context) -> None:
    frame = b"\x03" + struct.pack(">Q", MEBIBYTE) + bytes(MEBIBYTE)
    with context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=MEBIBYTE)) as router:
        with shake_hands(router) as peer:
            # This is six times what all peers together may have unread; without the cut, all of it would be sent.
            assert send_until_disconnected(peer, 64 * frame, router) > 2 * len(frame)
            until(lambda: router.connections.num_cut["unread"] == 1, router)
            assert is_reset(peer)
            assert (len(router.connections), router.connections._unread_bytes) == (0, 0)
        with shake_hands(router, b"another") as peer:
            peer.sendall(b"\x00\x02hi")
            until(lambda: router.bytes_in == 2, router)  # incomplete data was never delivered


def test_a_peer_that_never_reads_its_answers_is_disconnected(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets_module, "SILENCE_MILLISECONDS", 1000)
    with context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=MEBIBYTE)) as router, shake_hands(router) as peer:
        peer.setblocking(False)
        deadline = time.monotonic() + DEADLINE_SECONDS
        is_connected = True
        while is_connected:
            assert time.monotonic() < deadline, "it waits for ever"
            try:
                peer.send(b"\x00\x02hi")  # the peer is alive, so no heartbeat is missing
            except (ConnectionResetError, BrokenPipeError):
                is_connected = False
            Poller(router).poll(0.01)
            while (received := router.receive()) is not None:
                router.send(received[0], [bytes(MEBIBYTE)])


def test_a_server_answers_heartbeats_and_sends_none(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets_module, "HEARTBEAT_MILLISECONDS", 20)
    with context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=MEBIBYTE)) as router, shake_hands(router) as idle:
        until(lambda: len(router.connections) == 1, router)
        (descriptor,) = router.connections._connections
        sent = probe(descriptor).sent  # type: ignore[union-attr]
        with context.client(router.endpoint, "client", Limits(max_frame_bytes=MEBIBYTE)):
            until(lambda: len(router.connections) == 2, router)
            *_, client = router.connections._connections
            answered = probe(client).sent + 100  # type: ignore[union-attr]  # a dozen answers
            until(lambda: probe(client).sent > answered, router)  # type: ignore[union-attr]
        assert probe(descriptor).sent == sent  # type: ignore[union-attr]
        assert not select.select([idle], [], [], 0.0)[0]


def test_the_kernel_probes_the_idle_connections_of_a_server(context: Context) -> None:
    with context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=MEBIBYTE)) as router, shake_hands(router):
        until(lambda: len(router.connections) == 1, router)
        with socket.socket(fileno=os.dup(next(iter(router.connections._connections)))) as ours:
            options = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
            idle, interval, count = (ours.getsockopt(socket.IPPROTO_TCP, option) for option in options)
            assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert (idle + count * interval) * 1000 == sockets_module.SILENCE_MILLISECONDS


def send_and_arrive(peers: dict[socket.socket, bytes], router: Server) -> None:
    """Send, and return when libzmq holds everything as messages that ``router`` has not read.

    ZeroMQ's only I/O thread reads bytes from the kernel and turns them into messages before it serves the next socket. So once the
    kernel
    holds nothing, and after that a message has reached another router, all messages are there.
    """
    servers_side = {probe(descriptor).peer: descriptor for descriptor in router.connections._connections}  # type: ignore[union-attr]
    expected = {}
    for peer, data in peers.items():
        descriptor = servers_side[peer.getsockname()]
        expected[descriptor] = probe(descriptor).received + len(data)  # type: ignore[union-attr]
        peer.sendall(data)

    def kernel_has_handed_over(descriptor: int) -> bool:
        left = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]
        return left == 0 and probe(descriptor).received >= expected[descriptor]  # type: ignore[union-attr]

    wait_for(lambda: all(map(kernel_has_handed_over, expected)))
    with Context() as context, context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=MEBIBYTE)) as gate, shake_hands(gate) as peer:
        peer.sendall(b"\x00\x02hi")
        until(lambda: gate.bytes_in == 2, gate)


@pytest.mark.parametrize("num_greedy", [1, 3])
@pytest.mark.parametrize("max_burst", [MAX_BURST, MESSAGES_PER_TURN], ids=["bandit", "learner"])
def test_peers_are_served_in_turn_whatever_their_send_rate(context: Context, max_burst: int, num_greedy: int) -> None:
    """Between two waiting messages of a peer, each other peer has one message served, however many it has sent."""
    order: list[bytes] = []
    with context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=MEBIBYTE)) as router, ExitStack() as stack:
        meters = ServerMeters(Telemetry("bandit", "run"))
        inbox = Inbox(router, lambda _, frames: order.append(bytes(frames[0])), meters, max_burst=max_burst, clock=lambda: 0.0)
        greedy = [stack.enter_context(shake_hands(router, b"greedy %d" % number)) for number in range(num_greedy)]
        honest = stack.enter_context(shake_hands(router, b"honest"))
        until(lambda: len(router.connections) == num_greedy + 1, router)
        send_and_arrive({**dict.fromkeys(greedy, b"\x00\x06greedy" * 3000), honest: b"\x00\x06honest" * 20}, router)
        served = -1
        while len(order) > served:
            served = len(order)
            inbox.serve_waiting()
    turns = [position for position, peer in enumerate(order) if peer == b"honest"]
    assert (len(turns), len(order)) == (20, 20 + 3000 * num_greedy)
    assert turns[0] <= num_greedy
    assert max(later - earlier for earlier, later in pairwise(turns)) <= num_greedy + 1


@pytest.mark.parametrize("says", [b"", b"\x00\x07garbage"])
def test_unintroduced_connections_are_closed_for_new_clients(context: Context, says: bytes) -> None:
    """Such connections are half-open, or have sent something that no service accepted."""

    def stranger(router: Server) -> socket.socket:
        if not says:
            return socket.create_connection(("127.0.0.1", port_of(router)))
        peer = shake_hands(router)
        peer.sendall(says)
        return peer

    def serve(router: Server) -> bool:
        """Accept only messages that are understood, as a service does."""
        received = router.receive()
        is_honest = received is not None and bytes(received[1][0]) == b"hello"
        if received is not None and is_honest:
            router.trust(received[0])
        return is_honest

    with context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=MEBIBYTE, max_connections=8)) as router, ExitStack() as peers:
        for _ in range(30):
            peers.enter_context(stranger(router))
        until(lambda: router.connections.num_cut["too_many"] == 22, router)
        with context.client(router.endpoint, "honest", Limits(max_frame_bytes=MEBIBYTE)) as dealer:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while not dealer.send([b"hello"]):
                assert not serve(router)
                assert dealer.receive() is None
                assert time.monotonic() < deadline, "it is kept out"
                time.sleep(0.01)
            while not serve(router):
                assert time.monotonic() < deadline, "it is not heard"
                time.sleep(0.01)
            for _ in range(30):
                peers.enter_context(stranger(router))
            until(lambda: router.connections.num_cut["too_many"] >= 22 + 30, router)
            assert len(router.connections) <= 8
            assert Peer(b"honest") not in router.departures()
            while not dealer.connected:  # the dealer checks its connection ten times a second
                assert dealer.receive() is None
                assert time.monotonic() < deadline, "it does not see its connection"
                time.sleep(0.01)
            assert dealer.send([b"again"])


def test_a_connection_that_reuses_a_descriptor_keeps_its_introduction(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message may arrive before the server has noticed the end of the previous connection."""

    def hear() -> bool:
        if (received := router.receive()) is not None:
            router.trust(received[0])
        return received is not None

    with context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=MEBIBYTE, max_connections=1)) as router, ExitStack() as stack:
        first = stack.enter_context(shake_hands(router, b"first"))
        first.sendall(b"\x00\x05hello")
        wait_for(hear)
        number = next(number for number in range(1000) if (found := probe(number)) is not None and found.peer == first.getsockname())
        while (filler := os.dup(first.fileno())) < number:  # so that no lower number is free
            stack.callback(os.close, filler)
        os.close(filler)
        second = stack.enter_context(socket.socket())
        monkeypatch.setattr(router, "_look", lambda: None)
        first.shutdown(socket.SHUT_RDWR)  # frees the server's descriptor, but not the client's
        wait_for(lambda: not is_open(number))
        second.connect(("127.0.0.1", port_of(router)))
        greet(second, b"second")
        second.sendall(b"\x00\x05hello")
        wait_for(hear)
        assert is_open(number)
        monkeypatch.undo()
        with socket.create_connection(("127.0.0.1", port_of(router))) as stranger:
            until(lambda: router.connections.num_cut["too_many"] == 1, router)
            assert is_reset(stranger)
        second.sendall(b"\x00\x05again")
        wait_for(hear)


def test_a_message_of_too_many_frames_is_received_truncated(context: Context) -> None:
    with context.server("tcp://127.0.0.1:*", Limits(max_frame_bytes=MEBIBYTE)) as router, shake_hands(router) as peer:
        peer.sendall(b"\x01\x01x" * 5000 + b"\x00\x01y")
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (received := router.receive()) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert MAX_SLICES + 1 < len(received[1]) < MAX_SLICES + 10
        assert router.bytes_in >= 5001
        peer.sendall(b"\x00\x02hi")  # the stream is still in step after it
        while (received := router.receive()) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert [bytes(frame) for frame in received[1]] == [b"hi"]


def test_closing_many_connections_takes_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections_module, "LOOKED_AT_ONCE", 1 << 20)

    def prepare(size: int) -> Callable[[], object]:
        kernel = Kernel()
        table = kernel.table(max_connections=size, max_unread_bytes=0)
        for descriptor in range(size):
            kernel.connect(table, descriptor)
            kernel.receive(descriptor, 10)

        def look() -> None:
            table.look()
            assert len(kernel.shut) == size

        return look

    assert_linear(prepare, 64, 128, 256)


def test_departures_reports_each_disconnected_peer_once(kernel: Kernel) -> None:
    table = kernel.table()
    for descriptor in (1, 2, 3):
        kernel.connect(table, descriptor)
    one, two = Peer(b"one"), Peer(b"two")
    for descriptor, peer in ((1, one), (1, one), (2, two), (7, Peer(b"nobody"))):  # the last is gone, or does not use TCP
        table.routed(descriptor, b"route %d" % descriptor)
        table.note_sender(b"route %d" % descriptor, peer)
    for descriptor in (1, 3, 7):
        table.closed(descriptor)
    assert table.departures() == [one]
    assert table.departures() == []
    kernel.connect(table, 2, "another")  # the descriptor is used again
    assert table.departures() == [two]
