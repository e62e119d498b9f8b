"""Finds the newest connection of each peer. No I/O.

ZeroMQ numbers the connections, and a peer sends its name on each of them (ZMTP metadata). So a peer that reconnects is recognised, even
while its old connection still exists and delivers messages.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import zmq

from herd.transport.connections import MAX_CONNECTIONS

if TYPE_CHECKING:
    from herd.transport import Peer

NAME_PROPERTY = "X-Herd-Peer"
MAX_NAME_BYTES = 255
_NUMBER_BYTES = 5
"""Length of ZeroMQ's name of a connection without an identity: a zero byte and a 32-bit counter."""


def peer_name(frame: zmq.Frame) -> bytes | None:
    """Return the name that the sender of ``frame`` gave for its connection; None if there is no valid one."""
    try:
        name = str(frame.get(NAME_PROPERTY)).encode()
    except (zmq.ZMQError, UnicodeError):  # no name, or not text
        return None
    return name if 0 < len(name) <= MAX_NAME_BYTES else None


class Routes:
    """Peer -> its newest connection. The size is bounded by the number of connections; the longest silent are removed first."""

    def __init__(self, *, max_routes: int = MAX_CONNECTIONS) -> None:
        self._max_routes = max_routes
        self._routes: OrderedDict[Peer, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._routes)

    def heard(self, route: bytes, peer: Peer) -> bool:
        """Note that ``peer`` sent a message over the connection ``route``; False if it has a newer connection."""
        known = self._routes.get(peer)
        if known is not None and known != route and not _is_newer(route, known):
            return False
        self._routes[peer] = route
        self._routes.move_to_end(peer)
        if len(self._routes) > self._max_routes:
            self._routes.popitem(last=False)
        return True

    def route_to(self, peer: Peer) -> bytes:
        """Return the connection for an answer to ``peer``; one without a name is named after its connection."""
        return self._routes.get(peer, peer.name)


def _is_newer(route: bytes, than: bytes) -> bool:
    """Compare two connection numbers. An identity that a client invented is never newer."""
    if len(route) != _NUMBER_BYTES or route[0] != 0:
        return False
    ahead = (int.from_bytes(route[1:]) - int.from_bytes(than[1:])) % 2**32
    return 0 < ahead < 2**31
