"""Which of a peer's connections is the newest. No I/O.

Every connection has a number from ZeroMQ, and a peer says its name on each of its connections (ZMTP metadata). So a peer that connects
again is the same peer, while its old connection may still be there: half-dead, and with messages on the way.
"""

from __future__ import annotations

from collections import OrderedDict

import zmq

from herd.wire.connections import MAX_CONNECTIONS

NAME_PROPERTY = "X-Herd-Peer"
MAX_NAME_BYTES = 255
_NUMBER_BYTES = 5
"""A zero and 32 bits that count up: how ZeroMQ names a connection whose peer claims no identity."""


def peer_name(frame: zmq.Frame) -> bytes | None:
    """Return the name that the sender of ``frame`` gave itself on its connection; None if it gave none that can be one."""
    try:
        name = str(frame.get(NAME_PROPERTY)).encode()
    except (zmq.ZMQError, UnicodeError):  # none; or no text, which a stranger may send
        return None
    return name if 0 < len(name) <= MAX_NAME_BYTES else None


class Routes:
    """Name of a peer -> its newest connection. Remembers as many as there may be connections, the longest silent go first."""

    def __init__(self, *, max_routes: int = MAX_CONNECTIONS) -> None:
        self._max_routes = max_routes
        self._routes: OrderedDict[bytes, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._routes)

    def heard(self, route: bytes, name: bytes | None) -> bytes | None:
        """Return who speaks over the connection ``route``; None where it is one that its peer has left."""
        if name is None:
            return route
        known = self._routes.get(name)
        if known is not None and known != route and not _is_newer(route, known):
            return None
        self._routes[name] = route
        self._routes.move_to_end(name)
        if len(self._routes) > self._max_routes:
            self._routes.popitem(last=False)
        return name

    def route_to(self, peer: bytes) -> bytes:
        """Return the connection for an answer to ``peer``."""
        return self._routes.get(peer, peer)


def _is_newer(route: bytes, than: bytes) -> bool:
    """Compare two numbers; one that is none is a stranger's claim, and not newer."""
    if len(route) != _NUMBER_BYTES or route[0] != 0:
        return False
    ahead = (int.from_bytes(route[1:]) - int.from_bytes(than[1:])) % 2**32
    return 0 < ahead < 2**31
