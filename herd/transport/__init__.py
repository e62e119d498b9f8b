"""Frames of bytes between processes. It knows neither messages nor what the names of keys mean.

`Context` opens servers and clients; the scheme of an address chooses the transport (`herd.transport.context.TRANSPORTS`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from herd.transport.connections import Connections

Frame = bytes | memoryview
"""One frame of a message: bytes, or a view of one contiguous buffer that must not change until the message is acknowledged."""
MAX_FRAMES = 260
"""Frames kept of one message, including the route and the header. No valid message has this many, so longer ones are refused."""
ALWAYS_ALLOWED_BYTES = 1 << 20
"""Every socket accepts frames of this size, whatever its own limit: headers."""
UNREAD_PER_CONNECTION_BYTES = 4096
"""A well-behaved connection sends less than this during a minute in which it is not read: 12 credit requests. Its unrolls are counted
separately."""


class AddressInUse(OSError):  # noqa: N818 - named after the condition
    """Another process has bound this address, or the address does not exist here."""


class Peer(NamedTuple):
    """A client of a server, over all of its connections; answers go to the newest.

    A connection with the same name and another key is another peer, so that nobody takes the route of a client whose name he knows.
    """

    name: bytes
    """What it calls itself; one without a name gets one from the transport."""
    key: str = ""
    """Its public key, which was verified; empty without keys."""
    holder: str | None = None
    """Name of the key, such as ``client-actor-7``; None without keys."""

    def __str__(self) -> str:
        return self.name.decode("latin-1")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server or a client holds at most."""

    max_frame_bytes: int = 0
    """A peer that announces a larger frame is disconnected. Frames of ``ALWAYS_ALLOWED_BYTES`` are allowed in any case."""
    high_water_mark: int = 16
    """Messages queued for each peer."""
    unread_frames: int = 2
    """Servers: frames of the largest size that all peers together may have sent before this process reads them."""
    unread_bytes_each: int = UNREAD_PER_CONNECTION_BYTES
    """Servers: unread bytes per connection, in addition to these frames and the kernel's buffers. When the total is exceeded, the peer
    with the most unread bytes is disconnected."""
    max_connections: int | None = None
    """Servers: connections at once; None for the most that the process's limit of descriptors allows."""


class Socket(Protocol):
    """What a server and a client have in common. Used only by the thread that opened it; no call blocks, except ``Client.wait``."""

    bytes_in: int
    """Payload bytes received."""
    bytes_out: int
    """Payload bytes handed to the transport."""

    @property
    def waitable(self) -> object:
        """What a `herd.transport.context.Poller` waits for: a ZeroMQ socket, or a file descriptor."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable, perhaps only once for several messages: a Poller is easier."""

    def close(self, linger_seconds: float = 0.0) -> None:
        """Close; messages not sent within ``linger_seconds`` are lost. Closing again does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class Server(Socket, Protocol):
    """The side that binds: many peers, each with its own queue in either direction."""

    connections: Connections
    """The open connections, and counts of those closed."""

    @property
    def endpoint(self) -> str:
        """The bound address, with the actual port."""

    def receive(self) -> tuple[Peer, list[memoryview]] | None:
        """Return the next (peer, frames), at least one frame; None if none is waiting, or after too many skipped messages."""

    def send(self, peer: Peer, frames: Sequence[Frame]) -> bool:
        """Queue a message for ``peer``; False if it is unknown or its queue is full. What was queued before is not lost."""

    def trust(self, peer: Peer) -> None:
        """Note that this peer said something valid: it keeps its connection where there are too many."""

    def departures(self) -> list[Peer]:
        """Return the peers whose connections have ended since the last call; they may have others."""


class Client(Socket, Protocol):
    """The side that connects to one server, in the background and again whenever the connection breaks."""

    @property
    def connected(self) -> bool:
        """Whether there was a connection at the last ``receive``."""

    @property
    def num_connections(self) -> int:
        """Number of connections made, at the last ``receive``, since the client was opened."""

    @property
    def trouble(self) -> str | None:
        """Why there is no connection and what to check; None while connected or too early to tell."""

    def send(self, frames: Sequence[Frame]) -> bool:
        """Queue a message; False if there is no connection or the queue is full."""

    def receive(self) -> list[memoryview] | None:
        """Return the frames of the next message, at least one; None if none is waiting."""

    def wait(self, timeout_seconds: float) -> bool:
        """Wait at most ``timeout_seconds`` for a message; return whether there is one."""


class Transport(Protocol):
    """One way to carry frames. Another one is a module with such a class, and a line in ``TRANSPORTS``."""

    def server(self, address: str, limits: Limits) -> Server:
        """Bind. Raises ``AddressInUse``, and ``SettingsError`` if a key is missing or invalid."""

    def client(self, address: str, name: str, limits: Limits) -> Client:
        """Start connecting. Raises ``OSError`` if it is no address, and ``SettingsError`` if a key is missing or invalid."""

    def close(self, linger_milliseconds: int) -> None:
        """Close all that it opened, and end."""
