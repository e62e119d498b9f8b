"""The connections of a listening socket, with the limits that libzmq does not enforce itself.

libzmq delivers a message when its last frame has arrived, and its high-water marks count whole messages. It therefore buffers a message
that never ends without limit. It also accepts connections until the process has no file descriptors left. This table tracks every
connection, compares the bytes that the kernel received on it with the bytes delivered as messages, and closes connections that hold too
much data or exceed the limit on their number.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from herd.telemetry.metrics import CONNECTIONS_CUT_BY
from herd.transport import UNREAD_PER_CONNECTION_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.transport import Peer

MAX_CONNECTIONS = 16_384
"""Four times the 4,000 actors that the system is designed for; an actor has two connections to the parameter server."""
SPARE_DESCRIPTORS = 256
"""Descriptors reserved for files, metrics and everything else that the process opens."""
MIN_CONNECTIONS = 64
UNREAD_SLACK_BYTES = 8 << 20
"""Beyond what messages may hold: small ones of 4,000 peers take 1 MB, and the kernel keeps up to 6 MB for one that sends much. Every
byte of it can cost 30 of memory: a frame of 1 byte takes 3 on the wire, and 64 to 96 in libzmq."""
GREETING_BYTES = 8192
"""Limit of a connection that has not authenticated yet; a well-behaved client sends less than 1 kB before that."""
FRAME_OVERHEAD_BYTES = 48
"""Maximum overhead of one frame on the wire: 9 bytes of ZMTP, 33 of CURVE."""
HEARTBEAT_BYTES_PER_SECOND = 32
"""Maximum traffic of an idle connection: a PING every 5 s, with CURVE."""
LOOKED_AT_ONCE = 256
"""Connections compared per look. At 3 us each this takes 1 % of a core and covers 4,000 connections in 1.6 s."""

_COUNTS_OFFSET = 120
"""Offsets of ``tcpi_bytes_acked`` and ``tcpi_bytes_received``, unsigned 64-bit numbers, in ``struct tcp_info`` of Linux (since 4.1)."""
_TCP_INFO_BYTES = 136


class Probe(NamedTuple):
    """What the kernel knows of one descriptor."""

    peer: object
    """Address of the other side; it identifies the connection, because descriptor numbers are reused."""
    received: int
    """Bytes, in all."""
    sent: int = 0
    """Bytes that the other side has received, in all."""


def probe(descriptor: int) -> Probe | None:
    """Ask the kernel about a connection; None if it is gone or if the kernel does not report this."""
    try:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=descriptor)
    except OSError:
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        if len(info) < _TCP_INFO_BYTES:
            return None
        sent, received = struct.unpack_from("=QQ", info, _COUNTS_OFFSET)
        return Probe(connection.getpeername(), received, sent)
    except OSError:
        return None
    finally:
        connection.detach()  # it is libzmq's


def shut(descriptor: int, peer: object) -> None:
    """End the connection with ``peer``, if it is still the one behind ``descriptor``: libzmq then finds it closed."""
    try:
        # Duplicate the descriptor: libzmq may close its own at any time, and another connection may get the number.
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=os.dup(descriptor))
    except OSError:
        return
    with connection:
        try:
            if connection.getpeername() == peer:
                # A reset when libzmq closes it: the kernel keeps no answers that the peer does not read, nor waits for it to hang up too.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


@cache
def kernel_tells() -> bool:
    """Whether this kernel reports the bytes received on a connection; otherwise no limit in bytes applies."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as unconnected:
        try:
            return len(unconnected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)) == _TCP_INFO_BYTES
        except OSError:
            return False


def most_connections() -> int:
    """Maximum number of connections for which this process has descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(MIN_CONNECTIONS, min(MAX_CONNECTIONS, soft - SPARE_DESCRIPTORS))


@dataclass(slots=True)
class _Connection:
    peer: object
    looked_at: float
    received: int = 0
    delivered: int = 0
    """Bytes of these that were delivered as messages or were heartbeats."""
    route: bytes | None = None
    """The route of its messages, known after the first; it never changes."""
    sender: Peer | None = None
    """The peer that sends over it, known after the first message."""

    @property
    def unread(self) -> int:
        return max(0, self.received - self.delivered)


class Connections:
    """The connections of one socket. Used only by the socket's thread. Never blocks."""

    def __init__(
        self,
        *,
        max_connections: int,
        max_unread_bytes: int,
        unread_bytes_each: int = UNREAD_PER_CONNECTION_BYTES,
        welcome_bytes: int = 0,
        probe: Callable[[int], Probe | None] = probe,
        shut: Callable[[int, object], None] = shut,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an empty table.

        Args:
            max_connections: beyond this number, the oldest connection not yet verified is closed; if there is none, the new one.
            max_unread_bytes: limit of all connections together, in addition to ``unread_bytes_each``; beyond it, the connection with the
                most unread bytes is closed.
            unread_bytes_each: unread bytes allowed to every connection.
            welcome_bytes: the most that this server sends to a connection that has not authenticated; 0 if clients do not authenticate.
                Until more has been sent to it, a connection may have ``GREETING_BYTES`` unread.
            probe: queries the kernel.
            shut: closes a connection.
            clock: monotonic seconds.

        """
        self.num_cut = dict.fromkeys(CONNECTIONS_CUT_BY, 0)
        """Number of connections closed since the start, by cause."""
        self._max_connections = max_connections
        self._max_unread_bytes = max_unread_bytes
        self._unread_bytes_each = unread_bytes_each
        self._welcome_bytes = welcome_bytes
        self._probe = probe
        self._shut = shut
        self._clock = clock
        # By descriptor; the one checked least recently comes first.
        self._connections: OrderedDict[int, _Connection] = OrderedDict()
        # Connections not verified yet, and those of them that have not authenticated, oldest first.
        self._unverified: OrderedDict[int, None] = OrderedDict()
        self._greeting: OrderedDict[int, None] = OrderedDict()
        self._unread_bytes = 0  # as of the last looks
        self._by_route: dict[bytes, int] = {}
        # Bounded by the number of connections, for callers that never ask for departures.
        self._departed: deque[Peer] = deque(maxlen=MAX_CONNECTIONS)

    def __len__(self) -> int:
        return len(self._connections)

    def opened(self, descriptor: int) -> None:
        """Add a connection that was accepted."""
        self.closed(descriptor)  # the number may be reused before the end of the previous connection is reported
        found = self._probe(descriptor)
        if found is None:
            return
        self._connections[descriptor] = _Connection(found.peer, self._clock())
        self._unverified[descriptor] = None
        if self._welcome_bytes:
            self._greeting[descriptor] = None
        if len(self._connections) > self._max_connections:
            self._cut(next(iter(self._unverified)), "too_many")

    def closed(self, descriptor: int) -> None:
        """Forget a connection."""
        self._unverified.pop(descriptor, None)
        self._greeting.pop(descriptor, None)
        known = self._connections.pop(descriptor, None)
        if known is None:
            return
        self._unread_bytes -= known.unread
        if known.route is not None:
            self._by_route.pop(known.route, None)
        if known.sender is not None:
            self._departed.append(known.sender)

    def has(self, descriptor: int, route: bytes) -> bool:
        """Return whether this connection is known and carries messages of this route."""
        known = self._connections.get(descriptor)
        return known is not None and known.route == route

    def routed(self, descriptor: int, route: bytes) -> None:
        """Note the route of a connection's messages."""
        known = self._connections.get(descriptor)
        if known is not None:
            known.route = route
            self._by_route[route] = descriptor

    def delivered(self, descriptor: int, num_bytes: int, num_frames: int) -> None:
        """Count a message that was delivered."""
        known = self._connections.get(descriptor)
        if known is None:
            return
        before = known.unread
        known.delivered += num_bytes + num_frames * FRAME_OVERHEAD_BYTES
        self._unread_bytes += known.unread - before

    def verified(self, route: bytes) -> None:
        """Mark a connection as belonging to this run: the service has accepted a message from it."""
        self._unverified.pop(self._by_route.get(route, -1), None)

    def note_sender(self, route: bytes, peer: Peer) -> None:
        """Note the peer that sends over a connection."""
        known = self._connections.get(self._by_route.get(route, -1))
        if known is not None:
            known.sender = peer

    def departures(self) -> list[Peer]:
        """Return the peers whose connections have ended since the last call; they may have others."""
        departed = list(self._departed)
        self._departed.clear()
        return departed

    def look(self) -> None:
        """Compare some connections with the kernel's counts, and close those that hold too much."""
        for _ in range(min(LOOKED_AT_ONCE, len(self._greeting))):
            descriptor = next(iter(self._greeting))
            self._greeting.move_to_end(descriptor)
            self._look_at(descriptor)
        for _ in range(min(LOOKED_AT_ONCE, len(self._connections))):
            self._look_at(next(iter(self._connections)))
        if not self._holds_too_much():
            return
        # Sort once: a search for each would take seconds with thousands of small backlogs.
        for descriptor in sorted(self._connections, key=lambda descriptor: -self._connections[descriptor].unread):
            self._cut(descriptor, "unread")
            if not self._holds_too_much():
                return

    def _look_at(self, descriptor: int) -> None:
        known = self._connections[descriptor]
        found = self._probe(descriptor)
        if found is None or found.peer != known.peer:
            self.closed(descriptor)
            return
        self._connections.move_to_end(descriptor)
        now = self._clock()
        before = known.unread
        known.received = found.received
        heartbeats = round((now - known.looked_at) * HEARTBEAT_BYTES_PER_SECOND)
        known.looked_at = now
        # The overhead is an estimate; an overestimate must not accumulate as credit.
        known.delivered = min(known.delivered + heartbeats, known.received)
        self._unread_bytes += known.unread - before
        if found.sent > self._welcome_bytes:
            self._greeting.pop(descriptor, None)
        elif descriptor in self._greeting and known.unread > GREETING_BYTES:
            self._cut(descriptor, "unread")

    def _holds_too_much(self) -> bool:
        return self._unread_bytes > self._max_unread_bytes + self._unread_bytes_each * len(self._connections)

    def _cut(self, descriptor: int, cause: str) -> None:
        peer = self._connections[descriptor].peer
        self.closed(descriptor)
        self.num_cut[cause] += 1
        self._shut(descriptor, peer)
