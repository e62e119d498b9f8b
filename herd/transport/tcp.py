"""Connections over ZeroMQ, to ``tcp`` and ``ipc`` addresses. Sockets never block, never raise ZeroMQ errors, and say how they lose data."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from typing import TYPE_CHECKING, Self

import zmq

from herd.config.addresses import BOTH_VERSIONS, host_of, is_ipv6, is_name
from herd.config.encryption_keys import RUN_TOKEN_VARIABLE
from herd.config.errors import SettingsError
from herd.transport import ALWAYS_ALLOWED_BYTES, MAX_FRAMES, AddressInUse, Peer
from herd.transport.connections import UNREAD_SLACK_BYTES, Connections, kernel_tells, most_connections
from herd.transport.handshakes import ClientConnection, Handshake, HandshakeMonitor
from herd.transport.keys import MESSAGE_OVERHEAD_BYTES, Curve, RunToken
from herd.transport.routes import NAME_PROPERTY, Routes, peer_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from herd.transport import Frame, Limits
    from herd.transport.context import Context
    from herd.transport.keys import Guard

RECONNECT_MILLISECONDS = 100
RECONNECT_MAX_MILLISECONDS = 5_000  # an actor reconnects to a restarted learner within this time, and 4,000 actors do not overload it
HEARTBEAT_MILLISECONDS = 5_000
"""Interval of a client's heartbeats. A server sends none: libzmq searches all its timers at each answer, which with 5,000 connections takes
two thirds of its thread. The kernel finds a server's dead connections (``KEEP_ALIVE``)."""
SILENCE_MILLISECONDS = 30_000
"""A connection ends after this long without an answer. A heartbeat queues behind a frame, and 4.7 MB take this long at 0.16 MB/s."""
KEEP_ALIVE = {zmq.TCP_KEEPALIVE: 1, zmq.TCP_KEEPALIVE_IDLE: 10, zmq.TCP_KEEPALIVE_INTVL: 5, zmq.TCP_KEEPALIVE_CNT: 4}
"""Probes of the kernel, in seconds: the first after 10 without traffic, then four; ``SILENCE_MILLISECONDS`` together."""
HANDSHAKE_MILLISECONDS = 10_000  # three round trips and 1 ms of work, while 4,000 actors reconnect at once
LOOK_SECONDS = 0.1
"""Interval between checks of handshakes, connections and key files while a socket is read: 3 us each, 3 more per connection."""
MAX_DROPPED = 256
"""Messages skipped in one ``receive``: unauthorised peers must not keep the owner of the socket busy."""
UNCOPIED_BYTES = 1 << 16
"""Frames of at least this size are sent from the caller's memory, which is cheaper than copying; the caller must not change it."""
NOT_THE_LAST = zmq.DONTWAIT | zmq.SNDMORE

_LOG = logging.getLogger("herd.transport")


class Transport:
    """ZeroMQ's I/O thread and sockets of one process, and the keys that they use.

    Without keys, but with the run's token in the environment, every Router admits only clients that present it.
    With CURVE every Router admits only clients whose public key it knows, and every Dealer talks only to the holder of the server's
    secret key. Keys are read when the first socket of a role is created: a process without a Router needs no server key.
    """

    def __init__(self, context: Context) -> None:
        self.refusals = context.refusals
        self.log = context.log
        # One I/O thread moves about 1 GB/s unencrypted, the traffic of several learners.
        self._zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        security, token = context.security, context.environ.get(RUN_TOKEN_VARIABLE)
        self.guard: Guard | None = None
        """Secures the sockets; None without keys and token."""
        if security is not None and security.curve:
            self.guard = Curve(security, context.environ, self.refusals, self.log)
        elif token:
            self.guard = RunToken(token, self.refusals)

    def server(self, address: str, limits: Limits) -> Router:
        """Bind; see `herd.transport.context.Context.server`."""
        return Router(self, address, limits)

    def client(self, address: str, name: str, limits: Limits) -> Dealer:
        """Start connecting; see `herd.transport.context.Context.client`."""
        return Dealer(self, address, name, limits)

    def close(self, linger_milliseconds: int) -> None:
        """Close open sockets, and end."""
        if self.guard is not None:
            self.guard.close()
        self._zmq.destroy(linger=linger_milliseconds)

    def open(self, kind: int) -> zmq.Socket[bytes]:
        """Return a new socket without keys."""
        return self._zmq.socket(kind)


class _Socket:
    """The common part of Router and Dealer: options, counters, periodic checks of handshakes, closing."""

    _monitor: HandshakeMonitor

    def __init__(self, transport: Transport, kind: int, limits: Limits, connections: Connections | None = None) -> None:
        self.bytes_in = 0
        """Payload bytes received."""
        self.bytes_out = 0
        """Payload bytes handed to ZeroMQ."""
        self._transport = transport
        self._look_at = 0.0
        self._socket: zmq.Socket[bytes] = transport.open(kind)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, limits.high_water_mark)
        # A full queue stops libzmq from reading. If that peer then disconnects, our next heartbeat aborts our process ("!_io_error",
        # libzmq 4.3.5, issues 3937 and 4767). So no queue is ever full: servers close connections that send more than can be read, and
        # a client never has more waiting answers than requests.
        self._socket.setsockopt(zmq.RCVHWM, 0 if connections is None or kernel_tells() else limits.high_water_mark)
        overhead = MESSAGE_OVERHEAD_BYTES if isinstance(transport.guard, Curve) else 0
        self._socket.setsockopt(zmq.MAXMSGSIZE, max(limits.max_frame_bytes, ALWAYS_ALLOWED_BYTES) + overhead)
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MILLISECONDS)
        self._monitor = HandshakeMonitor(self._socket, connections)

    @property
    def waitable(self) -> zmq.Socket[bytes]:
        """The socket itself, because its descriptor is edge-triggered."""
        return self._socket

    def fileno(self) -> int:
        """Return the edge-triggered descriptor."""
        return self._socket.fileno()

    def close(self, linger_seconds: float = 0.0) -> None:
        """Close; messages not sent within ``linger_seconds`` are lost. Closing again does nothing.

        It returns at once; the context waits at its end, at most that long.
        """
        self._monitor.close()
        if not self._socket.closed:
            self._socket.close(linger=round(linger_seconds * 1000))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _send(self, parts: Sequence[Frame]) -> bool:
        send = self._socket.send
        try:
            for part in parts[:-1]:
                send(part, NOT_THE_LAST, copy=len(part) < UNCOPIED_BYTES)
            send(parts[-1], zmq.DONTWAIT, copy=len(parts[-1]) < UNCOPIED_BYTES)
        except zmq.ZMQError as error:
            if error.errno in {zmq.EAGAIN, zmq.EHOSTUNREACH, zmq.ETERM, zmq.ENOTSOCK, errno.EPIPE}:
                return False
            raise OSError(error.errno, f"send failed: {error.strerror}") from error
        self.bytes_out += sum(map(len, parts))
        return True

    def _receive(self) -> list[zmq.Frame] | None:
        now = time.monotonic()
        if now >= self._look_at and not self._socket.closed:
            self._look_at = now + LOOK_SECONDS
            self._look()
        try:
            frame = self._socket.recv(zmq.DONTWAIT, copy=False)
            frames = [frame]
            while frame.more:  # all frames of a message arrive together
                frame = self._socket.recv(zmq.DONTWAIT, copy=False)
                self.bytes_in += len(frame)
                if len(frames) < MAX_FRAMES:
                    frames.append(frame)
        except zmq.ZMQError as error:
            if error.errno in {zmq.EAGAIN, zmq.ETERM, zmq.ENOTSOCK}:
                return None
            raise OSError(error.errno, f"receive failed: {error.strerror}") from error
        self.bytes_in += len(frames[0])
        return frames

    def _look(self) -> None:
        """Check handshakes if it is time to."""
        raise NotImplementedError


class Router(_Socket):
    """A server's socket: many peers, each with its own queue in either direction.

    Loses data: messages from peers that this process has not received when it ends or a connection breaks; messages to a peer whose
    connection breaks. ``send`` to an unknown peer, or to one whose queue of ``high_water_mark`` messages is full, returns False and
    drops nothing that was queued before. Never blocks.
    When a peer reconnects, its newest connection counts: answers go there, and messages from an older one are dropped. Memory is
    bounded by the unread messages that ``Connections`` allows, and by peers x ``high_water_mark`` unsent answers. With CURVE, messages
    of a client whose key was revoked since it connected are dropped and counted.
    """

    def __init__(self, transport: Transport, address: str, limits: Limits) -> None:
        guard = transport.guard
        self.connections = Connections(
            max_connections=limits.max_connections or most_connections(),
            max_unread_bytes=limits.unread_frames * max(limits.max_frame_bytes, ALWAYS_ALLOWED_BYTES) + UNREAD_SLACK_BYTES,
            unread_bytes_each=limits.unread_bytes_each,
            welcome_bytes=guard.welcome_bytes if guard is not None else 0,
        )
        """The open connections, and counts of those closed."""
        self._routes = Routes()
        super().__init__(transport, zmq.ROUTER, limits, self.connections)
        # A peer that sends but does not read keeps its connection alive and its answers in our memory.
        self._socket.setsockopt(zmq.TCP_MAXRT, SILENCE_MILLISECONDS)
        for option, value in KEEP_ALIVE.items():
            self._socket.setsockopt(option, value)
        # No ROUTER_HANDOVER: it leaves the older connection without a queue, which causes the same abort as a full one.
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        try:
            self._authorised = guard.secure_server(self._socket) if guard is not None else None
        except SettingsError:
            self.close()
            raise
        host = host_of(address)
        # A socket of IPv6 at every interface takes IPv4 too; where the kernel has no IPv6, libzmq falls back to IPv4.
        self._socket.setsockopt(zmq.IPV6, host in BOTH_VERSIONS or is_ipv6(host))
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self.close()
            raise AddressInUse(error.errno, f"cannot bind {address}: {os.strerror(error.errno or 0)}") from error

    @property
    def endpoint(self) -> str:
        """The bound endpoint, with the actual port."""
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")

    def send(self, peer: Peer, frames: Sequence[Frame]) -> bool:
        """Queue a message for ``peer``; False if it is unknown or its queue is full."""
        route = self._routes.route_to(peer)
        if not self._send([route, *frames]):
            # libzmq may not know yet that the peer has read: it looks about once a millisecond, and when it is asked for events.
            with contextlib.suppress(zmq.ZMQError):  # the socket is closed, or its context has ended
                self._socket.getsockopt(zmq.EVENTS)
            if not self._send([route, *frames]):
                return False
        self.bytes_out -= len(route)  # the route is not sent
        return True

    def receive(self) -> tuple[Peer, list[memoryview]] | None:
        """Return the next (peer, frames), at least one frame; None if none is waiting, or after too many skipped messages."""
        for _ in range(MAX_DROPPED):
            if (frames := self._receive()) is None:
                return None
            route = frames[0].bytes
            self.bytes_in -= len(route)  # which is not sent
            self._account_for(route, frames)
            if len(frames) == 1 or (sender := self._sender(route, frames[1])) is None or not self._routes.heard(route, sender):
                continue
            self.connections.note_sender(route, sender)
            return sender, [frame.buffer for frame in frames[1:]]
        return None

    def trust(self, peer: Peer) -> None:
        """Note that this peer said something valid: its connection is not among those that are closed first where there are too many."""
        self.connections.verified(self._routes.route_to(peer))

    def departures(self) -> list[Peer]:
        """Return the peers whose connections have ended since the last call; they may have others."""
        return self.connections.departures()

    def _account_for(self, route: bytes, frames: list[zmq.Frame]) -> None:
        with contextlib.suppress(zmq.ZMQError):  # not over TCP
            descriptor = int(frames[-1].get(zmq.SRCFD))
            if not self.connections.has(descriptor, route):  # new since the last check, or gone, or its number was reused
                self._read_events()
                self.connections.routed(descriptor, route)
            self.connections.delivered(descriptor, sum(map(len, frames[1:])), len(frames) - 1)

    def _sender(self, route: bytes, frame: zmq.Frame) -> Peer | None:
        """Return the sender; None if its key is no longer admitted: libzmq checked it at the handshake, which may be days ago."""
        name = peer_name(frame) or route
        if self._authorised is None:
            return Peer(name)
        key = str(frame.get("User-Id"))
        if (holder := self._authorised.name_of(key)) is not None:
            return Peer(name, key, holder)
        self._transport.refusals.add("revoked", "a client whose key was revoked is still connected and is ignored: stop it")
        return None

    def _look(self) -> None:
        self._read_events()
        self.connections.look()
        if self._authorised is not None:
            self._authorised.refresh()

    def _read_events(self) -> None:
        for handshake in self._monitor.read():
            self._refuse(handshake)

    def _refuse(self, handshake: Handshake) -> None:
        refusals = self._transport.refusals
        if handshake is Handshake.MECHANISM and isinstance(self._transport.guard, RunToken):
            refusals.add(
                "mechanism", f"refused a client without this run's token at {self.endpoint}: give it {RUN_TOKEN_VARIABLE}, or the same keys"
            )
        elif handshake is Handshake.MECHANISM and self._authorised is None:
            refusals.add("mechanism", f"refused a client with CURVE at {self.endpoint}, which has none: set security.curve_keys here too")
        elif handshake is Handshake.MECHANISM:
            refusals.add("mechanism", f"refused a client without CURVE at {self.endpoint}: give it keys (security.curve_keys)")
        elif handshake is Handshake.CRYPTOGRAPHIC:
            refusals.add("wrong_server_key", f"refused a client that trusts another server, at {self.endpoint}: copy server.public to it")
        elif handshake is Handshake.PROTOCOL:
            refusals.add("protocol", f"a peer violated the handshake protocol at {self.endpoint}; it may not be a process of this release")
        elif handshake is Handshake.CLOSED:
            refusals.add("incomplete")
        # Handshake.REFUSED: the authenticator, which knows the client's address, has counted it.


class Dealer(_Socket):
    """A client's socket to one server.

    Loses data: messages that were sent and not received when the connection breaks. ``send`` returns False and queues nothing while
    there is no connection (IMMEDIATE) or ``high_water_mark`` messages are queued. Never blocks.
    It reconnects automatically and resolves the host name each time. After a failed handshake, and to the other version of IP, it
    reconnects only while ``receive`` is called. The reason for a missing connection is logged once a minute.
    """

    def __init__(self, transport: Transport, address: str, name: str, limits: Limits) -> None:
        super().__init__(transport, zmq.DEALER, limits)
        self._endpoint = address
        # With IPv6 enabled, names without an IPv6 address also resolve. If a name has both kinds, libzmq tries only one.
        self._ipv6 = is_ipv6(host_of(address))
        # Not as ZeroMQ's own identity, because two connections with one identity cannot be distinguished (see Router).
        self._socket.setsockopt(zmq.METADATA, NAME_PROPERTY.encode() + b":" + name.encode())
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MILLISECONDS)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MILLISECONDS)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MILLISECONDS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MILLISECONDS)
        self._socket.setsockopt(zmq.IPV6, self._ipv6)
        self._complained = False
        guard = transport.guard
        try:
            key_name = guard.secure_client(self._socket) if guard is not None else None
            self._connection = ClientConnection(address, key_name=key_name, is_name=is_name(host_of(address)))
            self._socket.connect(address)
        except SettingsError:
            self.close()
            raise
        except zmq.ZMQError as error:
            self.close()
            raise OSError(error.errno, f"cannot connect to {address}: {os.strerror(error.errno or 0)}") from error

    @property
    def connected(self) -> bool:
        """Whether there was a connection at the last ``receive``."""
        return self._connection.connected

    @property
    def num_connections(self) -> int:
        """Number of connections made, at the last ``receive``, since the socket was opened."""
        return self._connection.num_connections

    @property
    def trouble(self) -> str | None:
        """Why there is no connection and what to check; None while connected or too early to tell."""
        return self._connection.trouble

    def send(self, frames: Sequence[Frame]) -> bool:
        """Queue a message; False if there is no connection or the queue is full."""
        return self._send(frames)

    def receive(self) -> list[memoryview] | None:
        """Return the frames of the next message, at least one; None if none is waiting."""
        frames = self._receive()
        return [frame.buffer for frame in frames] if frames is not None else None

    def wait(self, timeout_seconds: float) -> bool:
        """Wait at most ``timeout_seconds`` for a message; return whether there is one."""
        return bool(self._socket.poll(max(0, round(timeout_seconds * 1000)), zmq.POLLIN))

    def _look(self) -> None:
        let_go = False
        for handshake in self._monitor.read():
            # A connection that succeeded after a failure is kept.
            let_go = self._connection.on_handshake(handshake) or (let_go and handshake is Handshake.DISCONNECTED)
        if let_go:
            with contextlib.suppress(zmq.ZMQError):  # libzmq has disconnected already
                self._socket.disconnect(self._endpoint)
        if self._connection.must_connect():
            self._socket.connect(self._endpoint)
        elif self._connection.must_try_other_version():
            self._ipv6 = not self._ipv6
            with contextlib.suppress(zmq.ZMQError):
                self._socket.disconnect(self._endpoint)
            self._socket.setsockopt(zmq.IPV6, self._ipv6)
            self._socket.connect(self._endpoint)
        if (trouble := self._connection.trouble) is not None:
            self._complained |= self._transport.log.warn(self._endpoint, trouble)
        elif self._complained and self._connection.connected:
            self._complained = False
            _LOG.info("connected to %s", self._endpoint)
