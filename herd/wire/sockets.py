"""The only door to ZeroMQ: sockets that never block, never raise ZeroMQ errors, and say how they lose data.

Every socket belongs to the one thread that made it; only ``Waker.wake`` may be called from others.
One ``zmq.Context`` per process, given in.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING, Self, TypeAlias

import zmq

from herd.wire.messages import MAX_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from herd.wire.codec import Frame

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"
"""ZeroMQ's I/O thread and sockets of one process."""

RECONNECT_MILLISECONDS = 100
RECONNECT_MAX_MILLISECONDS = 5_000  # an actor finds a restarted learner within this, and 4,000 actors do not storm it
HEARTBEAT_MILLISECONDS = 5_000
HEARTBEAT_TIMEOUT_MILLISECONDS = 30_000  # six beats; a beat queues behind a frame, and 4.7 MB pass at 0.16 MB/s in this time


class EndpointInUse(OSError):  # noqa: N818 - says what is wrong, like FileExistsError without the suffix
    """Another process has bound this endpoint, or the address does not exist here."""


def new_context() -> Context:
    """Return a context for the process, with one I/O thread: it moves about 1 GB/s, several learners' worth."""
    return zmq.Context(io_threads=1)


class _Socket:
    """What Router and Dealer share: options, counting, closing."""

    def __init__(self, context: Context, kind: int, max_frame_bytes: int, high_water_mark: int) -> None:
        self.bytes_in = 0
        """Payload bytes received."""
        self.bytes_out = 0
        """Payload bytes handed to ZeroMQ."""
        self._socket: zmq.Socket[bytes] = context.socket(kind)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, high_water_mark)
        self._socket.setsockopt(zmq.RCVHWM, high_water_mark)
        self._socket.setsockopt(zmq.MAXMSGSIZE, max(max_frame_bytes, MAX_HEADER_BYTES))
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MILLISECONDS)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MILLISECONDS)
        self._socket.setsockopt(zmq.HEARTBEAT_TTL, HEARTBEAT_TIMEOUT_MILLISECONDS)

    def fileno(self) -> int:
        """Return the descriptor for polling (edge-triggered: use ``Poller``)."""
        return self._socket.fileno()

    def close(self, linger_seconds: float = 0.0) -> None:
        """Close; what has not left this process within ``linger_seconds`` is lost. Closing again does nothing.

        It returns at once: the context's end is what waits, at most that long.
        """
        if not self._socket.closed:
            self._socket.close(linger=round(linger_seconds * 1000))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _send(self, parts: Sequence[Frame]) -> bool:
        try:
            # Frames of 64 KiB and more are not copied (pyzmq's copy_threshold); the caller keeps them unchanged.
            self._socket.send_multipart(parts, zmq.DONTWAIT, copy=False)
        except zmq.ZMQError as error:
            if error.errno in {zmq.EAGAIN, zmq.EHOSTUNREACH, zmq.ETERM, zmq.ENOTSOCK, errno.EPIPE}:
                return False
            raise OSError(error.errno, f"send failed: {error.strerror}") from error
        self.bytes_out += sum(map(len, parts))
        return True

    def _receive(self) -> list[memoryview] | None:
        try:
            frames = self._socket.recv_multipart(zmq.DONTWAIT, copy=False)
        except zmq.ZMQError as error:
            if error.errno in {zmq.EAGAIN, zmq.ETERM, zmq.ENOTSOCK}:
                return None
            raise OSError(error.errno, f"receive failed: {error.strerror}") from error
        views = [frame.buffer for frame in frames]
        self.bytes_in += sum(map(len, views))
        return views


class Router(_Socket):
    """A server's socket: many peers, each with its own queue in either direction.

    Loses data: messages that peers sent and this process had not received when it ends or a connection breaks;
    messages to a peer whose connection breaks. ``send`` to an unknown peer, or to one whose queue of
    ``high_water_mark`` messages is full, returns False and drops nothing that was queued before. Never blocks.
    A reconnecting peer takes over its identity (ROUTER_HANDOVER). Memory is bounded by peers x ``high_water_mark``
    messages in each direction; credit keeps it far below.
    """

    def __init__(
        self,
        context: Context,
        bind_endpoint: str,
        *,
        max_frame_bytes: int,
        high_water_mark: int = 16,
    ) -> None:
        """Bind.

        Args:
            context: the process's.
            bind_endpoint: such as ``tcp://127.0.0.1:7100``; port ``*`` takes a free one, see ``endpoint``.
            max_frame_bytes: a peer that announces a larger frame is disconnected.
            high_water_mark: messages queued per peer and direction.

        Raises:
            EndpointInUse: the endpoint cannot be bound.

        """
        super().__init__(context, zmq.ROUTER, max_frame_bytes, high_water_mark)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        try:
            self._socket.bind(bind_endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise EndpointInUse(error.errno, f"cannot bind {bind_endpoint}: {os.strerror(error.errno or 0)}") from error

    @property
    def endpoint(self) -> str:
        """What is bound, with the actual port."""
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")

    def send(self, peer: bytes, frames: Sequence[Frame]) -> bool:
        """Queue a message for ``peer``; False if it is unknown or its queue is full."""
        return self._send([peer, *frames])

    def receive(self) -> tuple[bytes, list[memoryview]] | None:
        """Return the next (peer, frames), at least one frame; None if none is waiting."""
        while (frames := self._receive()) is not None:
            if len(frames) > 1:
                return bytes(frames[0]), frames[1:]
        return None


class Dealer(_Socket):
    """A client's socket to one server.

    Loses data: whatever was written and not received when the connection breaks. ``send`` returns False, and queues
    nothing, while there is no connection (IMMEDIATE) or ``high_water_mark`` messages are queued. Never blocks.
    Reconnects by itself, resolving the host name each time.
    """

    def __init__(
        self,
        context: Context,
        connect_endpoint: str,
        *,
        routing_id: str,
        max_frame_bytes: int,
        high_water_mark: int = 16,
    ) -> None:
        """Start to connect in the background.

        Args:
            context: the process's.
            connect_endpoint: such as ``tcp://learner-0:7100``.
            routing_id: 1..255 bytes, unique among the server's peers.
            max_frame_bytes: a server that announces a larger frame is disconnected.
            high_water_mark: messages queued in each direction.

        Raises:
            OSError: the endpoint is not an address.

        """
        self._context = context
        self._endpoint = connect_endpoint
        self._routing_id = routing_id.encode()
        self._limits = (max_frame_bytes, high_water_mark)
        self._open()

    def _open(self) -> None:
        super().__init__(self._context, zmq.DEALER, *self._limits)
        self._socket.setsockopt(zmq.ROUTING_ID, self._routing_id)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MILLISECONDS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MILLISECONDS)
        try:
            self._socket.connect(self._endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise OSError(error.errno, f"cannot connect to {self._endpoint}: {os.strerror(error.errno or 0)}") from error

    def restart_connection(self, connect_endpoint: str | None = None) -> None:
        """Drop the connection and everything queued, and connect afresh, to another endpoint if given. Pollers must register again."""
        bytes_in, bytes_out = self.bytes_in, self.bytes_out
        self.close()
        self._endpoint = connect_endpoint or self._endpoint
        self._open()
        self.bytes_in, self.bytes_out = bytes_in, bytes_out

    def send(self, frames: Sequence[Frame]) -> bool:
        """Queue a message; False if there is no connection or the queue is full."""
        return self._send(frames)

    def receive(self) -> list[memoryview] | None:
        """Return the frames of the next message, at least one; None if none is waiting."""
        return self._receive()

    def wait(self, timeout_seconds: float) -> bool:
        """Tell whether a message can be received, waiting at most ``timeout_seconds``."""
        return bool(self._socket.poll(max(0, round(timeout_seconds * 1000)), zmq.POLLIN))


class Waker:
    """Wakes a ``Poller`` from another thread. Wakes that come before the poll merge into one; none is lost."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def wake(self) -> None:
        """Make the waker readable; callable from any thread."""
        # A full pipe is as loud as one byte; a closed one has nobody to wake.
        with contextlib.suppress(BlockingIOError, OSError):
            self._writer.send(b"\0")

    def clear(self) -> None:
        """Forget the wakes so far; call it before looking at what the wake was about."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""
        return self._reader.fileno()

    def close(self) -> None:
        """Close both ends."""
        self._reader.close()
        self._writer.close()


class Poller:
    """Waits for any of several sockets and wakers."""

    def __init__(self, *sources: Router | Dealer | Waker) -> None:
        self._poller = zmq.Poller()
        self._by_key: dict[object, Router | Dealer | Waker] = {}
        for source in sources:
            self.register(source)

    def register(self, source: Router | Dealer | Waker) -> None:
        """Add a source; a closed one must be taken out with ``unregister`` first."""
        key = source.fileno() if isinstance(source, Waker) else source._socket
        self._by_key[key] = source
        self._poller.register(key, zmq.POLLIN)

    def unregister(self, source: Router | Dealer | Waker) -> None:
        """Remove a source; unknown ones are ignored."""
        for key in [key for key, known in self._by_key.items() if known is source]:
            del self._by_key[key]
            self._poller.unregister(key)

    def poll(self, timeout_seconds: float) -> set[Router | Dealer | Waker]:
        """Return the sources that can be read, waiting at most ``timeout_seconds``; read a socket until it gives None."""
        try:
            ready = self._poller.poll(max(0, round(timeout_seconds * 1000)))
        except zmq.ContextTerminated:
            return set()
        return {self._by_key[key] for key, _ in ready}
