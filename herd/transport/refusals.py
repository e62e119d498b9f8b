"""Counts of clients that could not connect to this process, by reason; each reason is logged at most once a minute."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Literal, cast, get_args

if TYPE_CHECKING:
    from collections.abc import Callable

Reason = Literal["unknown_key", "revoked", "wrong_server_key", "mechanism", "incomplete", "protocol"]
"""``unknown_key``: the client is not on the list. ``revoked``: a message from a client removed from the list. ``wrong_server_key``: the
client trusts another server. ``mechanism``: one side uses CURVE and the other does not. ``incomplete``: the connection ended during the
handshake, as with port scans and TCP probes. ``protocol``: not a valid handshake."""
REASONS: tuple[Reason, ...] = get_args(Reason)

_LOG = logging.getLogger("herd.transport")
INTERVAL_SECONDS = 60.0


class OncePerMinute:
    """Warnings of one process, each key at most once a minute; keys come from a fixed set. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, int]] = {}

    def warn(self, key: str, line: str) -> bool:
        """Log ``line``; return whether it was logged."""
        now = self._clock()
        with self._lock:
            at, suppressed = self._last.get(key, (None, 0))
            if at is not None and now - at < INTERVAL_SECONDS:
                self._last[key] = (at, suppressed + 1)
                return False
            self._last[key] = (now, 0)
        _LOG.warning("%s%s", line, f" ({suppressed} more since the last such line)" if suppressed else "")
        return True


class Refusals:
    """Counts of refused clients of one process. Thread-safe."""

    def __init__(self, log: OncePerMinute) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(REASONS, 0)

    def add(self, reason: Reason, line: str = "") -> None:
        """Count one, and log ``line`` if there is one."""
        with self._lock:
            self._counts[reason] += 1
        if line:
            self._log.warn(reason, line)

    def count(self, reason: str) -> int:
        """Return the count since the process started of ``reason``, one of ``REASONS``."""
        return self._counts[cast("Reason", reason)]
