"""Who could not connect to this process, by reason; each reason in the log at most once a minute."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Literal, cast, get_args

if TYPE_CHECKING:
    from collections.abc import Callable

Reason = Literal["unknown_key", "revoked", "wrong_server_key", "mechanism", "incomplete", "protocol"]
"""``unknown_key``: a client that is not on the list. ``revoked``: a message of one that was. ``wrong_server_key``: a client that trusts
another server. ``mechanism``: one side uses CURVE and the other does not. ``incomplete``: gone before the handshake ended, as port scans
and TCP probes do. ``protocol``: no sound handshake."""
REASONS: tuple[Reason, ...] = get_args(Reason)

_LOG = logging.getLogger("herd.wire")
INTERVAL_SECONDS = 60.0


class OncePerMinute:
    """Warnings of one process, each key at most once a minute; keys come from a closed set. Safe from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, int]] = {}

    def warn(self, key: str, line: str) -> bool:
        """Log ``line``; tell whether it was."""
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
    """Counts of one process. Safe from any thread."""

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
        """Since the process started; of ``REASONS``."""
        return self._counts[cast("Reason", reason)]
