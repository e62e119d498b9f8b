"""The handshakes of one socket as libzmq reports them, and how a client reacts to failed ones."""

from __future__ import annotations

import itertools
import random
import time
from enum import Enum, auto
from typing import TYPE_CHECKING

import zmq
from zmq.utils.monitor import parse_monitor_message

from herd.config.encryption_keys import RUN_TOKEN_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from herd.transport.connections import Connections

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
MAX_EVENTS = 4096
"""Maximum number of events read in one call."""
FIRST_DELAY_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 5.0
"""Interval between attempts of a refused client: 4,000 clients cost their server 800 handshakes/s, and a new key takes effect soon."""
FIRST_VERSION_SECONDS = 1.0
LONGEST_VERSION_SECONDS = 30.0
"""Time without a connection over one version of IP before the other is tried; each change starts again with fast attempts."""
PATIENCE_SECONDS = 10.0
"""Time without a connection before it is logged; a service starts in less."""
CLOSED_BEFORE_WORTH_A_LINE = 3
"""A server killed during a handshake also closes the connection, but not three times in a row."""


class Handshake(Enum):
    """The outcome of a handshake, or what happened to its connection."""

    BEGUN = auto()
    """The connection is open; clients only."""
    SUCCEEDED = auto()
    REFUSED = auto()
    """The server does not know the client's key."""
    MECHANISM = auto()
    """One side uses CURVE and the other does not."""
    CRYPTOGRAPHIC = auto()
    """The keys do not match: the client trusts another server."""
    PROTOCOL = auto()
    """Not a valid handshake."""
    CLOSED = auto()
    """Closed by the other side, or timed out."""
    DISCONNECTED = auto()
    """The connection ended, after any of the others."""


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
    """Reads the events of one socket. Used only by the socket's thread. Never blocks."""

    def __init__(self, socket: zmq.Socket[bytes], connections: Connections | None = None) -> None:
        """Start monitoring; a server passes ``connections``, which is updated as connections open and close."""
        self._socket = socket
        self._connections = connections
        address = f"inproc://herd-handshakes-{next(_NUMBERS)}"
        socket.monitor(address, int(_CLIENT_EVENTS if connections is None else _SERVER_EVENTS))
        self._events: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
        self._events.setsockopt(zmq.LINGER, 0)
        # Unbounded: at a limit libzmq's own thread would block, with all traffic, and forever if the socket is being closed. A flood
        # of connections causes some 10,000 events between two reads, 2 MB.
        self._events.setsockopt(zmq.RCVHWM, 0)
        self._events.connect(address)

    def read(self) -> Iterator[Handshake]:
        """Return the events since the last call, in order."""
        for _ in range(MAX_EVENTS):
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
        """Stop; call this before closing the socket itself."""
        if not self._events.closed:
            # First, so that libzmq does not write to a pair that is not read.
            self._socket.disable_monitor()
            self._events.close()


class ClientConnection:
    """The state of a client's connection, from its events: when to disconnect, when to reconnect, and what to log. No I/O.

    After a refusal libzmq never reconnects, and after other failures it reconnects ten times a second forever. The client therefore
    disconnects from its endpoint at any failed handshake and reconnects after its own delays.
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
        """Start unconnected; ``key_name`` is the name of the client's key, None without CURVE.

        With ``is_name`` the host may have addresses of both versions of IP.
        """
        self.num_connections = 0
        """Number of handshakes that have succeeded."""
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
        """The handshake has succeeded."""
        return self._down_since is None

    def on_handshake(self, handshake: Handshake) -> bool:
        """Process one event; return whether to disconnect from the endpoint."""
        if handshake is Handshake.BEGUN:
            self._attempts_since = None
            self._version_seconds = FIRST_VERSION_SECONDS
            return False
        if handshake is Handshake.SUCCEEDED:
            self.num_connections += 1
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
        """Return, once, that it is time to reconnect."""
        if self._connect_at is None or self._clock() < self._connect_at:
            return False
        self._connect_at = None
        self._attempts_since = self._clock()
        return True

    def must_try_other_version(self) -> bool:
        """Return, once, that the other version of IP must be tried, because no server answers over this one."""
        if not self._is_name or self._attempts_since is None or self._clock() - self._attempts_since < self._version_seconds:
            return False
        self._attempts_since = self._clock()
        self._version_seconds = min(2 * self._version_seconds, LONGEST_VERSION_SECONDS)
        return True

    @property
    def trouble(self) -> str | None:
        """Why there is no connection and what to check, in one line; None while connected or too early to tell."""
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
                f"{endpoint} ends every handshake: its secret key does not belong to the server.public here, or it has no CURVE "
                "(security.curve_keys); or is the address wrong?"
            )
        return f"{endpoint} ends every handshake: does it demand CURVE (security.curve_keys), or is the address wrong?"
