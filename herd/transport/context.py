"""The transports of one process, what waits for several sockets, and counts of clients that could not connect."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import threading
from typing import TYPE_CHECKING, Self

import zmq

from herd.telemetry.logs import LimitedWarnings, get_logger
from herd.telemetry.metrics import AUTHENTICATION_FAILURES_BY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from herd.config.run import SecuritySettings
    from herd.transport import Client, Limits, Server, Transport

TRANSPORTS = {"tcp": "herd.transport.tcp", "ipc": "herd.transport.tcp"}
"""Scheme of an address -> module with a class ``Transport``, which is imported at the first such address."""


class Refusals:
    """Counts of refused clients of one process, by ``AUTHENTICATION_FAILURES_BY``. Thread-safe."""

    def __init__(self, log: LimitedWarnings) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(AUTHENTICATION_FAILURES_BY, 0)

    def add(self, reason: str, line: str = "") -> None:
        """Count one, and log ``line`` if there is one."""
        with self._lock:
            self._counts[reason] += 1
        if line:
            self._log.warn(reason, line)

    def count(self, reason: str) -> int:
        """Return the count since the process started of ``reason``."""
        return self._counts[reason]


class Context:
    """Opens the servers and clients of one process; it knows where their keys are, and counts refused clients.

    Used by any thread; what it opens belongs to the thread that opened it.
    """

    def __init__(self, security: SecuritySettings | None = None, environ: Mapping[str, str] = os.environ) -> None:
        """Open nothing yet; ``security`` and ``environ`` say where keys are, None means unencrypted connections.

        Raises:
            SettingsError: there should be keys, and ZeroMQ was built without CURVE.

        """
        self.security = security
        self.environ = environ
        self.log = LimitedWarnings(get_logger("herd.transport"))
        self.refusals = Refusals(self.log)
        """Counts of clients that could not connect to this process's servers."""
        self._transports: dict[str, Transport] = {}

    @property
    def curve(self) -> bool:
        """Whether connections are encrypted and authenticated by keys."""
        return self.security is not None and self.security.curve

    def server(self, address: str, limits: Limits) -> Server:
        """Bind ``address``, such as ``tcp://127.0.0.1:7100`` or ``tcp://[::1]:7100``.

        Host ``*`` is every interface, of IPv4 and IPv6; port ``*`` takes a free one, see ``Server.endpoint``.

        Raises:
            AddressInUse: the address cannot be bound.
            SettingsError: a key is missing or invalid.

        """
        return self._transport(address).server(address, limits)

    def client(self, address: str, name: str, limits: Limits) -> Client:
        """Start connecting to ``address``; ``name`` has 1..255 bytes and is unique among the server's peers.

        Raises:
            OSError: it is not an address.
            SettingsError: a key is missing or invalid.

        """
        return self._transport(address).client(address, name, limits)

    def destroy(self, linger: int = 0) -> None:
        """Close what is open, with ``linger`` milliseconds, and end. A second call does nothing."""
        while self._transports:
            _, transport = self._transports.popitem()
            transport.close(linger)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.destroy()

    def _transport(self, address: str) -> Transport:
        module = TRANSPORTS.get(address.partition("://")[0])
        if module is None:
            raise OSError(f"{address}: no transport of this scheme; there are {', '.join(sorted(TRANSPORTS))}")
        if module not in self._transports:
            self._transports[module] = importlib.import_module(module).Transport(self)
        return self._transports[module]


class Waker:
    """Wakes a ``Poller`` from another thread. Wakes that come before the poll merge into one; none is lost."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    @property
    def waitable(self) -> int:
        """The descriptor that becomes readable."""
        return self._reader.fileno()

    def wake(self) -> None:
        """Make the waker readable; may be called from any thread."""
        # A full pipe wakes the reader too; a closed one has no reader.
        with contextlib.suppress(BlockingIOError, OSError):
            self._writer.send(b"\0")

    def clear(self) -> None:
        """Reset the waker; call this before processing the reason for the wake."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def close(self) -> None:
        """Close both ends."""
        self._reader.close()
        self._writer.close()


class Poller:
    """Waits for any of several sockets and wakers."""

    def __init__(self, *sources: Server | Client | Waker) -> None:
        self._poller = zmq.Poller()
        self._by_key: dict[object, Server | Client | Waker] = {}
        for source in sources:
            self.register(source)

    def register(self, source: Server | Client | Waker) -> None:
        """Add a source; remove it with ``unregister`` before it is closed."""
        self._by_key[source.waitable] = source
        self._poller.register(source.waitable, zmq.POLLIN)

    def unregister(self, source: Server | Client | Waker) -> None:
        """Remove a source; unknown ones are ignored."""
        for key in [key for key, known in self._by_key.items() if known is source]:
            del self._by_key[key]
            self._poller.unregister(key)

    def poll(self, timeout_seconds: float) -> set[Server | Client | Waker]:
        """Wait at most ``timeout_seconds``; return the sources that can be read. Read a socket until it returns None."""
        try:
            ready = self._poller.poll(max(0, round(timeout_seconds * 1000)))
        except zmq.ContextTerminated:
            return set()
        return {self._by_key[key] for key, _ in ready}
