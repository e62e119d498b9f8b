"""What libzmq tells of the handshakes of one socket, and what a client does about those that fail."""

from __future__ import annotations

import itertools
import random
import time
from enum import Enum, auto
from typing import TYPE_CHECKING

import zmq
from zmq.utils.monitor import parse_monitor_message

from herd.config.curve_keys import RUN_TOKEN_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from herd.wire.connections import Connections

_EVENTS = (
    zmq.Event.HANDSHAKE_SUCCEEDED
    | zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.DISCONNECTED
)
_CLIENT_EVENTS = _EVENTS | zmq.Event.CONNECTED
_SERVER_EVENTS = (_EVENTS | zmq.Event.ACCEPTED) & ~zmq.Event.HANDSHAKE_SUCCEEDED
_NUMBERS = itertools.count()
MOST_EVENTS = 4096
"""Read at one look; more wait."""
FIRST_DELAY_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 5.0
"""Between attempts of a client that is refused: 4,000 of them cost their server 800 handshakes/s, and a key added is used soon."""
FIRST_VERSION_SECONDS = 1.0
LONGEST_VERSION_SECONDS = 30.0
"""Without any connection over one version of IP, before the other is tried: each change begins again with the fast attempts."""
PATIENCE_SECONDS = 10.0
"""Without any connection, before it is worth a line: a service starts in less."""
CLOSED_BEFORE_WORTH_A_LINE = 3
"""A server that was killed while we shook hands closes a connection too, but not three times in a row."""


class Handshake(Enum):
    """How one went, or what became of its connection."""

    BEGUN = auto()
    """There is a connection; of a client."""
    SUCCEEDED = auto()
    REFUSED = auto()
    """The server does not know the client's key."""
    MECHANISM = auto()
    """One side has CURVE, the other not."""
    CRYPTOGRAPHIC = auto()
    """Keys that do not fit: the client trusts another server."""
    PROTOCOL = auto()
    """Not what a handshake looks like."""
    CLOSED = auto()
    """By the other side, or out of time."""
    DISCONNECTED = auto()
    """After any of the others."""


_KINDS = {
    zmq.Event.CONNECTED: Handshake.BEGUN,
    zmq.Event.HANDSHAKE_SUCCEEDED: Handshake.SUCCEEDED,
    zmq.Event.HANDSHAKE_FAILED_AUTH: Handshake.REFUSED,
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL: Handshake.PROTOCOL,
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL: Handshake.CLOSED,
    zmq.Event.DISCONNECTED: Handshake.DISCONNECTED,
}
_PROTOCOL_KINDS = {
    int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH): Handshake.MECHANISM,
    int(zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC): Handshake.CRYPTOGRAPHIC,
}


class HandshakeMonitor:
    """Reads the events of one socket; belongs to the same thread. Never blocks."""

    def __init__(self, socket: zmq.Socket[bytes], connections: Connections | None = None) -> None:
        """Begin; ``connections``, of a server, is told of each that opens or closes."""
        self._socket = socket
        self._connections = connections
        address = f"inproc://herd-handshakes-{next(_NUMBERS)}"
        socket.monitor(address, int(_CLIENT_EVENTS if connections is None else _SERVER_EVENTS))
        self._events: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
        self._events.setsockopt(zmq.LINGER, 0)
        # No bound: libzmq's own thread would wait at it, with everybody's traffic, and for ever where we are closing meanwhile. A flood
        # of connections makes some 10,000 events between two looks, 2 MB.
        self._events.setsockopt(zmq.RCVHWM, 0)
        self._events.connect(address)

    def read(self) -> Iterator[Handshake]:
        """Return what happened since the last call, in order."""
        for _ in range(MOST_EVENTS):
            try:
                frames = self._events.recv_multipart(zmq.DONTWAIT)
            except zmq.ZMQError:  # nothing more; or the context ended
                return
            event = parse_monitor_message(frames)
            happened = zmq.Event(event["event"])
            if self._connections is not None and happened is zmq.Event.ACCEPTED:
                self._connections.opened(event["value"])
                continue
            if self._connections is not None and happened is zmq.Event.DISCONNECTED:
                self._connections.closed(event["value"])
                continue
            kind = _KINDS[happened]
            yield _PROTOCOL_KINDS.get(event["value"], kind) if kind is Handshake.PROTOCOL else kind

    def close(self) -> None:
        """Stop; before the socket itself is closed."""
        if not self._events.closed:
            # First: libzmq must not write to a pair that nobody reads.
            self._socket.disable_monitor()
            self._events.close()


class ClientConnection:
    """A client's connection as its events show it: when to let go, when to try again, and what to say. No I/O.

    After a refusal libzmq never connects again, and after other failures it does so ten times a second for ever. So the client lets
    its endpoint go at any failed handshake, and connects again after delays of its own.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        key_name: str | None,
        is_name: bool = False,
        clock: Callable[[], float] = time.monotonic,
        jitter: random.Random | None = None,
    ) -> None:
        """Begin, unconnected; ``key_name`` is that of the client's own key, None without CURVE.

        With ``is_name`` the host may have addresses of both versions of IP.
        """
        self._endpoint = endpoint
        self._key_name = key_name
        self._clock = clock
        self._jitter = jitter or random.Random()
        self._down_since: float | None = clock()
        self._connect_at: float | None = None
        self._delay = FIRST_DELAY_SECONDS
        self._num_closed = 0
        self._failure: Handshake | None = None
        self._is_name = is_name
        self._attempts_since: float | None = clock()
        """Without any connection; None while there is one, or while the endpoint is let go."""
        self._version_seconds = FIRST_VERSION_SECONDS

    @property
    def connected(self) -> bool:
        """Both sides have agreed."""
        return self._down_since is None

    def on_handshake(self, handshake: Handshake) -> bool:
        """Take one event; tell whether the endpoint must be let go."""
        if handshake is Handshake.BEGUN:
            self._attempts_since = None
            self._version_seconds = FIRST_VERSION_SECONDS
            return False
        if handshake is Handshake.SUCCEEDED:
            self._down_since = self._failure = self._connect_at = None
            self._num_closed = 0
            self._delay = FIRST_DELAY_SECONDS
            return False
        if self._down_since is None:
            self._down_since = self._clock()
        if handshake is Handshake.DISCONNECTED:
            if self._connect_at is None:  # libzmq connects again
                self._attempts_since = self._clock()
            return False
        self._num_closed = self._num_closed + 1 if handshake is Handshake.CLOSED else 0
        if handshake is not Handshake.CLOSED or self._num_closed >= CLOSED_BEFORE_WORTH_A_LINE:
            self._failure = handshake
        self._connect_at = self._clock() + self._delay * self._jitter.uniform(0.5, 1.5)
        self._delay = min(2 * self._delay, LONGEST_DELAY_SECONDS)
        return True

    def must_connect(self) -> bool:
        """Tell, once, that it is time to connect again."""
        if self._connect_at is None or self._clock() < self._connect_at:
            return False
        self._connect_at = None
        self._attempts_since = self._clock()
        return True

    def must_try_other_version(self) -> bool:
        """Tell, once, that the host should be asked for over the other version of IP: over this one nobody answers."""
        if not self._is_name or self._attempts_since is None or self._clock() - self._attempts_since < self._version_seconds:
            return False
        self._attempts_since = self._clock()
        self._version_seconds = min(2 * self._version_seconds, LONGEST_VERSION_SECONDS)
        return True

    @property
    def trouble(self) -> str | None:
        """Why there is no connection and what to look at, in one line; None while there is one, or while it is too early to say."""
        if self._failure is not None:
            return self._explain(self._failure)
        if self._down_since is None or self._clock() - self._down_since < PATIENCE_SECONDS:
            return None
        return f"no connection to {self._endpoint} for {PATIENCE_SECONDS:g} s or more: is it running, and is the address right?"

    def _explain(self, failure: Handshake) -> str:
        endpoint, curve = self._endpoint, self._key_name is not None
        if self._key_name == RUN_TOKEN_VARIABLE:
            return f"{endpoint} does not take this run's token: is it of another run, or does it use keys? ({RUN_TOKEN_VARIABLE})"
        if failure is Handshake.REFUSED:
            return (
                f"{endpoint} does not know this client's key ({self._key_name}): copy its public key into the folder of keys of that "
                "server, or choose a key that it knows (security.curve_client)"
            )
        if failure is Handshake.MECHANISM:
            here, there = ("has CURVE", "has not") if curve else ("has no CURVE", f"demands it, or the run's token ({RUN_TOKEN_VARIABLE})")
            return f"this client {here} and {endpoint} {there}: give both the same security.curve_keys; or is the address wrong?"
        if curve:
            return (
                f"{endpoint} ends every handshake: its secret key does not belong to the server.public here, or it has no CURVE; "
                "or is the address wrong?"
            )
        return f"{endpoint} ends every handshake: does it demand CURVE (security.curve_keys), or is the address wrong?"
