"""Counts of clients that could not connect to this process, by reason; each reason is logged at most once a minute."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal, cast, get_args

if TYPE_CHECKING:
    from herd.telemetry.logs import LimitedWarnings

Reason = Literal["unknown_key", "revoked", "wrong_server_key", "mechanism", "incomplete", "protocol"]
"""``unknown_key``: the client is not on the list. ``revoked``: a message from a client removed from the list. ``wrong_server_key``: the
client trusts another server. ``mechanism``: one side uses CURVE and the other does not. ``incomplete``: the connection ended during the
handshake, as with port scans and TCP probes. ``protocol``: not a valid handshake."""
REASONS: tuple[Reason, ...] = get_args(Reason)


class Refusals:
    """Counts of refused clients of one process. Thread-safe."""

    def __init__(self, log: LimitedWarnings) -> None:
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
