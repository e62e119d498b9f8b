"""A TCP proxy on loopback that can spoil what passes through it: one link between two processes, cut, stalled, slowed or moved.

One thread per proxy owns every socket; the other threads only set what it shall do and wake it. Memory is bounded: at most
``BUFFER_BYTES`` wait per connection and direction, because a direction is read only while its buffer has room.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Literal

HOST = "127.0.0.1"
BUFFER_BYTES = 65_536
"""Per connection and direction, beside what the kernel holds: a tenth of a second of the slowest useful link."""
IDLE_SECONDS = 1.0
"""Longest sleep of the thread; every change of mode wakes it at once."""
SLOW_TICK_SECONDS = 0.02
"""A slow link moves its bytes in portions of this much time, not in one burst a second."""

Mode = Literal["pass", "cut", "stall", "deaf", "slow"]


class _Pipe:
    """One direction of one connection: bytes read from ``source`` that ``sink`` has not taken yet."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.buffer = bytearray()

    def read(self) -> bool:
        """Take what is there and fits; False at the end of the stream or where it broke."""
        try:
            data = self.source.recv(BUFFER_BYTES - len(self.buffer))
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.buffer += data
        return bool(data)

    def write(self, most_bytes: int) -> int | None:
        """Hand over at most this much; returns how much, None where the other side is gone."""
        try:
            sent = self.sink.send(memoryview(self.buffer)[:most_bytes])
        except BlockingIOError:
            return 0
        except OSError:
            return None
        del self.buffer[:sent]
        return sent


@dataclass(eq=False, slots=True)
class _Connection:
    client: socket.socket
    server: socket.socket
    pipes: list[_Pipe] = field(default_factory=list)
    watched: dict[socket.socket, int] = field(default_factory=dict)
    """What the selector was last told."""


class Proxy:
    """Forwards ``address`` to a backend port of this machine until told otherwise. Every method may be called from any thread.

    A backend that does not listen is a closed connection for the client, as behind a service without endpoints.
    """

    def __init__(self, backend_port: int) -> None:
        """Listen on a free port and start the thread."""
        self._backend_port = backend_port
        self._mode: Mode = "pass"
        self._bytes_per_second = 0.0
        self._budget = 0.0
        self._budget_at = 0.0
        self._close_all = False
        self._orders = threading.Lock()
        """Held while a port and the end of the old connections are changed together."""
        self._closed = False
        self._connections: list[_Connection] = []
        self.bytes_forwarded = 0
        """Both directions, since the start."""
        self.num_accepted = 0
        """Connections ever taken."""
        self._listener: socket.socket | None = self._listen(0)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._waker, self._wake_end = socket.socketpair()
        for end in (self._waker, self._wake_end):
            end.setblocking(False)
        self._selector.register(self._wake_end, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """As a setting wants it."""
        return f"tcp://{HOST}:{self.port}"

    @property
    def mode(self) -> Mode:
        """What it does now."""
        return self._mode

    @property
    def num_connections(self) -> int:
        """Open now."""
        return len(self._connections)

    @property
    def buffered_bytes(self) -> int:
        """Waiting in this process, over all connections."""
        return sum(len(pipe.buffer) for connection in list(self._connections) for pipe in connection.pipes)

    def forward(self) -> None:
        """Pass everything as it comes: the fault is over."""
        self._set("pass")

    def cut(self) -> None:
        """Reset every connection and refuse new ones, as an unplugged cable does with a firewall that answers."""
        with self._orders:
            self._mode, self._close_all = "cut", True
        self._wake()

    def stall(self) -> None:
        """Keep connections open, accept new ones, forward nothing: a network that swallows."""
        self._set("stall")

    def deafen(self) -> None:
        """Forward what clients say, and hold back every answer: what arrives is not known to have arrived."""
        self._set("deaf")

    def reset(self) -> None:
        """End every connection, with what is under way, and pass everything from then on."""
        with self._orders:
            self._mode, self._close_all = "pass", True
        self._wake()

    def slow(self, bytes_per_second: float) -> None:
        """Forward at most this many bytes a second, both directions and all connections together."""
        self._bytes_per_second = bytes_per_second
        self._budget, self._budget_at = 0.0, time.monotonic()
        self._set("slow")

    def move(self, backend_port: int) -> None:
        """Lead to another port from now on; connections to the old one are reset."""
        with self._orders:
            self._backend_port, self._close_all = backend_port, True
        self._wake()

    def close(self) -> None:
        """Close everything and end the thread."""
        self._closed = True
        self._wake()
        self._thread.join(10.0)

    def _set(self, mode: Mode) -> None:
        self._mode = mode
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    # -- everything below runs in the proxy's thread

    def _run(self) -> None:
        try:
            while not self._closed:
                self._follow_mode()
                timeout = SLOW_TICK_SECONDS if self._mode == "slow" and self._connections else IDLE_SECONDS
                for key, events in self._selector.select(timeout):
                    self._on_ready(key, events)
        finally:
            for connection in list(self._connections):
                self._drop(connection, reset=True)
            if self._listener is not None:
                self._listener.close()
            self._selector.close()
            self._waker.close()
            self._wake_end.close()

    def _follow_mode(self) -> None:
        """Bring listener, connections and what is waited for in line with what the other threads asked for."""
        self._take_orders()
        if self._mode == "cut" and self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None
        elif self._mode != "cut" and self._listener is None:
            self._listener = self._listen(self.port)
            self._selector.register(self._listener, selectors.EVENT_READ)
        for connection in list(self._connections):
            if self._mode == "slow":
                self._flush(connection)
            else:
                self._watch(connection)

    def _take_orders(self) -> int:
        """End the connections of before a cut or a move; returns where new ones lead."""
        with self._orders:
            close_all, self._close_all, port = self._close_all, False, self._backend_port
        for connection in list(self._connections) if close_all else ():
            self._drop(connection, reset=True)
        return port

    def _on_ready(self, key: selectors.SelectorKey, events: int) -> None:
        if key.fileobj is self._wake_end:
            with contextlib.suppress(BlockingIOError):
                while self._wake_end.recv(4096):
                    pass
        elif key.fileobj is self._listener:
            self._accept()
        elif isinstance(key.data, _Connection) and key.data in self._connections and self._mode != "stall":
            self._on_traffic(key.data, key.fileobj, events)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        port = self._take_orders()
        if self._mode == "cut":
            _reset(client)
            return
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # On loopback a connection stands or is refused at once; a stopped process's backlog takes it too, until that is full.
            server.settimeout(0.2)
            server.connect((HOST, port))
        except OSError:
            _reset(client)
            server.close()
            return
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(client, server)
        connection.pipes = [_Pipe(client, server), _Pipe(server, client)]
        self._connections.append(connection)
        self.num_accepted += 1
        self._watch(connection)

    def _on_traffic(self, connection: _Connection, end: object, events: int) -> None:
        for pipe in connection.pipes:
            if pipe.source is end and events & selectors.EVENT_READ and not self._holds(connection, pipe) and not pipe.read():
                # What was read before the end still goes, as far as the other side takes it now.
                self._forward(connection, pipe)
                self._drop(connection)
                return
        self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        """Hand over what waits, as far as the mode and the other sides allow."""
        if all(self._forward(connection, pipe) for pipe in connection.pipes):
            self._watch(connection)
        else:
            self._drop(connection)

    def _holds(self, connection: _Connection, pipe: _Pipe) -> bool:
        """Whether this direction stands still."""
        return self._mode == "stall" or (self._mode == "deaf" and pipe is connection.pipes[1])

    def _forward(self, connection: _Connection, pipe: _Pipe) -> bool:
        """Hand over what waits in one direction; False where its receiver is gone."""
        if not pipe.buffer or self._holds(connection, pipe):
            return True
        most = self._allowance() if self._mode == "slow" else BUFFER_BYTES
        sent = pipe.write(most) if most > 0 else 0
        if sent is None:
            return False
        self.bytes_forwarded += sent
        self._budget -= sent
        return True

    def _allowance(self) -> int:
        """Bytes that a slow link may move now; what is not used in a tick does not add up to a burst."""
        now = time.monotonic()
        earned = (now - self._budget_at) * self._bytes_per_second
        self._budget_at = now
        self._budget = min(max(self._budget, 0.0) + earned, max(1.0, 10 * SLOW_TICK_SECONDS * self._bytes_per_second))
        return int(self._budget)

    def _watch(self, connection: _Connection) -> None:
        """Wait for what this connection can use: to read where there is room, to write where something waits; for nothing in a stall."""
        for pipe, other in zip(connection.pipes, reversed(connection.pipes), strict=True):
            wanted = 0
            if len(pipe.buffer) < BUFFER_BYTES and not self._holds(connection, pipe):
                wanted |= selectors.EVENT_READ
            if other.buffer and self._mode != "slow" and not self._holds(connection, other):
                wanted |= selectors.EVENT_WRITE
            self._watch_socket(connection, pipe.source, wanted)

    def _watch_socket(self, connection: _Connection, end: socket.socket, wanted: int) -> None:
        before = connection.watched.get(end, 0)
        if wanted == before:
            return
        if before == 0:
            self._selector.register(end, wanted, connection)
        elif wanted == 0:
            self._selector.unregister(end)
        else:
            self._selector.modify(end, wanted, connection)
        connection.watched[end] = wanted

    def _drop(self, connection: _Connection, *, reset: bool = False) -> None:
        for end, events in connection.watched.items():
            if events:
                self._selector.unregister(end)
        connection.watched.clear()
        self._connections.remove(connection)
        for end in (connection.client, connection.server):
            if reset:
                _reset(end)
            else:
                end.close()

    @staticmethod
    def _listen(port: int) -> socket.socket:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(128)
        listener.setblocking(False)
        return listener


def _reset(end: socket.socket) -> None:
    """Close with a reset, so that the other side notices at once and no port lingers."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
