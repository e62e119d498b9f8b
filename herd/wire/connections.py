"""Who is connected to a listening socket: what libzmq does not bound by itself.

libzmq hands a message over when its last frame is there, and its high-water marks count whole messages: of one that never ends it
reads, and keeps, frame after frame. It also accepts connections for as long as there are descriptors, which then lack for files. So
this table knows every connection, compares what the kernel has received on it with what came out as messages, and cuts off who holds
too much or who is one too many.
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
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args

if TYPE_CHECKING:
    from collections.abc import Callable

Cause = Literal["crowd", "unread"]
"""Why a connection was cut off. ``crowd``: too many at once. ``unread``: it sent more than anybody can have read."""
CAUSES: tuple[Cause, ...] = get_args(Cause)

MAX_CONNECTIONS = 16_384
"""Four times the 4,000 actors that the system is meant for; an actor has two with the parameter server."""
SPARE_DESCRIPTORS = 256
"""Of the process's limit, for files, metrics and whatever else it opens."""
LEAST_CONNECTIONS = 64
UNREAD_SLACK_BYTES = 8 << 20
"""Beyond what messages may hold: small ones of 4,000 peers take 1 MB, and the kernel keeps up to 6 MB for one that sends much. Every
byte of it can cost 30 of memory: a frame of 1 byte takes 3 on the wire, and 64 to 96 in libzmq."""
UNREAD_PER_CONNECTION_BYTES = 4096
"""Of an honest one after a minute in which nobody read: it has asked for credit 60 times. Its unrolls are in the bound itself."""
GREETING_BYTES = 8192
"""Of a connection that authenticates and has not yet: an honest one sends less than 1 kB until it is let in."""
FRAME_OVERHEAD_BYTES = 48
"""Of one frame on the wire, at most: 9 of ZMTP, 33 of CURVE."""
HEARTBEAT_BYTES_PER_SECOND = 32
"""Of a connection on which nothing else comes, at most: a PING and a PONG every 5 s, in CURVE."""
LOOKED_AT_ONCE = 256
"""Connections compared per look; at 3 us each, 1 % of a core, and 4,000 come round in 1.6 s."""

_COUNTS_OFFSET = 120
"""Of ``tcpi_bytes_acked`` and ``tcpi_bytes_received`` in Linux' ``struct tcp_info`` (since 4.1), unsigned 64-bit numbers."""
_TCP_INFO_BYTES = 136


class Probe(NamedTuple):
    """What the kernel knows of one descriptor."""

    peer: object
    """Address of the other side: a descriptor's number is used again, this tells by whom."""
    received: int
    """Bytes, in all."""
    sent: int = 0
    """Bytes that the other side has received, in all."""


def probe(descriptor: int) -> Probe | None:
    """Ask the kernel about a connection; None if it is gone, or if this is no such kernel."""
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
        # A descriptor of our own: libzmq may close its one, and another connection may get the number, between two lines.
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
    """Whether this kernel knows how much it received on a connection; without, nothing here is bounded by bytes."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as unconnected:
        try:
            return len(unconnected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)) == _TCP_INFO_BYTES
        except OSError:
            return False


def most_connections() -> int:
    """How many this process can hold without lacking descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(LEAST_CONNECTIONS, min(MAX_CONNECTIONS, soft - SPARE_DESCRIPTORS))


@dataclass(slots=True)
class _Connection:
    peer: object
    looked_at: float
    received: int = 0
    delivered: int = 0
    """Of these, what has come out as messages, or was heartbeats."""
    route: bytes | None = None
    """That its messages bear, once one has come out; a connection never changes it."""

    @property
    def unread(self) -> int:
        return max(0, self.received - self.delivered)


class Connections:
    """The table of one socket; belongs to the same thread. Never blocks."""

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
        """Begin without connections.

        Args:
            max_connections: beyond these, one that has not been introduced yet is cut off, the oldest such first; else the newcomer.
            max_unread_bytes: of all connections together, beside ``unread_bytes_each``; beyond, the one with most is cut off.
            unread_bytes_each: allowed to every connection.
            welcome_bytes: that this server sends at most to one that has not authenticated; 0: nobody does. Until more than these have
                gone to it, a connection may have ``GREETING_BYTES`` unread.
            probe: asks the kernel.
            shut: ends a connection.
            clock: monotonic seconds.

        """
        self.num_cut: dict[Cause, int] = dict.fromkeys(CAUSES, 0)
        self._max_connections = max_connections
        self._max_unread_bytes = max_unread_bytes
        self._unread_bytes_each = unread_bytes_each
        self._welcome_bytes = welcome_bytes
        self._probe = probe
        self._shut = shut
        self._clock = clock
        # By descriptor, those not looked at for longest first.
        self._connections: OrderedDict[int, _Connection] = OrderedDict()
        # Those that were not introduced yet, and of these those that have not authenticated, oldest first.
        self._strangers: OrderedDict[int, None] = OrderedDict()
        self._greeting: OrderedDict[int, None] = OrderedDict()
        self._unread_bytes = 0
        self._speakers: dict[int, bytes] = {}
        # As many as there may be connections: whoever does not ask who has left loses nothing but that.
        self._departed: deque[bytes] = deque(maxlen=MAX_CONNECTIONS)

    def __len__(self) -> int:
        return len(self._connections)

    def count_cut(self, cause: str) -> int:
        """Of ``CAUSES``, since the start."""
        return self.num_cut[cast("Cause", cause)]

    @property
    def unread_bytes(self) -> int:
        """Received, as of the last looks, and not come out as messages."""
        return self._unread_bytes

    def opened(self, descriptor: int) -> None:
        """Take in a connection that was accepted."""
        self.closed(descriptor)  # the number may be used again before anybody said that the one before is gone
        found = self._probe(descriptor)
        if found is None:
            return
        self._connections[descriptor] = _Connection(found.peer, self._clock())
        self._strangers[descriptor] = None
        if self._welcome_bytes:
            self._greeting[descriptor] = None
        if len(self._connections) > self._max_connections:
            self._cut(next(iter(self._strangers)), "crowd")

    def closed(self, descriptor: int) -> None:
        """Forget a connection."""
        self._strangers.pop(descriptor, None)
        self._greeting.pop(descriptor, None)
        if (speaker := self._speakers.pop(descriptor, None)) is not None:
            self._departed.append(speaker)
        known = self._connections.pop(descriptor, None)
        if known is not None:
            self._unread_bytes -= known.unread

    def has(self, descriptor: int, route: bytes) -> bool:
        """Tell whether this connection is known, and messages of this route come over it."""
        known = self._connections.get(descriptor)
        return known is not None and known.route == route

    def routed(self, descriptor: int, route: bytes) -> None:
        """Note the route of a connection's messages."""
        known = self._connections.get(descriptor)
        if known is not None:
            known.route = route

    def delivered(self, descriptor: int, num_bytes: int, num_frames: int) -> None:
        """Count a message that came out."""
        known = self._connections.get(descriptor)
        if known is None:
            return
        before = known.unread
        known.delivered += num_bytes + num_frames * FRAME_OVERHEAD_BYTES
        self._unread_bytes += known.unread - before

    def introduced(self, descriptor: int) -> None:
        """Keep the place of a connection: a message of it was taken by the service, as one of this run."""
        self._strangers.pop(descriptor, None)

    def speaks(self, descriptor: int, peer: bytes) -> None:
        """Note who is heard over a connection."""
        if descriptor in self._connections:
            self._speakers[descriptor] = peer

    def departures(self) -> list[bytes]:
        """Return the peers whose connections have ended since the last call; they may have others."""
        departed = list(self._departed)
        self._departed.clear()
        return departed

    def look(self) -> None:
        """Compare some connections with what the kernel says, and cut off who holds too much."""
        for _ in range(min(LOOKED_AT_ONCE, len(self._greeting))):
            descriptor = next(iter(self._greeting))
            self._greeting.move_to_end(descriptor)
            self._look_at(descriptor)
        for _ in range(min(LOOKED_AT_ONCE, len(self._connections))):
            self._look_at(next(iter(self._connections)))
        if not self._holds_too_much():
            return
        # Sorted once: a search for each would take seconds where thousands hold a little.
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
        # The overhead was estimated; nobody may save up what it was estimated too high.
        known.delivered = min(known.delivered + heartbeats, known.received)
        self._unread_bytes += known.unread - before
        if found.sent > self._welcome_bytes:
            self._greeting.pop(descriptor, None)
        elif descriptor in self._greeting and known.unread > GREETING_BYTES:
            self._cut(descriptor, "unread")

    def _holds_too_much(self) -> bool:
        return self._unread_bytes > self._max_unread_bytes + self._unread_bytes_each * len(self._connections)

    def _cut(self, descriptor: int, cause: Cause) -> None:
        peer = self._connections[descriptor].peer
        self.closed(descriptor)
        self.num_cut[cause] += 1
        self._shut(descriptor, peer)
