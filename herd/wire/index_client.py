"""An actor's lease of its index from the parameter server's root."""

from __future__ import annotations

import secrets
import time
from random import Random
from typing import TYPE_CHECKING

from herd.wire.backoff import RetryTimer
from herd.wire.codec import MalformedMessage, decode_header, encode
from herd.wire.messages import MAX_HEADER_BYTES, IndexLeased, LeaseIndex, Refused, ReleaseIndex
from herd.wire.sockets import Context, Dealer

if TYPE_CHECKING:
    from collections.abc import Callable

FAREWELL_SECONDS = 0.2
"""The release may take this long to leave a closing process."""
WAIT_SECONDS = 0.25
"""Longest wait in one piece while there is no index yet, so that the caller notices a signal."""


class IndexLease:
    """Holds an index for as long as ``poll`` is called; renews it at a third of its length.

    Never blocks but in ``acquire``. Loses data: a request or an answer when a connection breaks; it asks again.
    """

    def __init__(self, context: Context, endpoint: str, *, run_id: str) -> None:
        """Start to connect; ``acquire`` waits for the index."""
        self._run_id = run_id
        self._holder = secrets.token_hex(16)
        self._dealer = Dealer(context, endpoint, routing_id=f"index/{self._holder}", max_frame_bytes=MAX_HEADER_BYTES)
        self._timer = RetryTimer(time.monotonic, Random())
        self._request_id = 0
        self._renew_at = 0.0
        self._index: int | None = None
        self.refused: str | None = None
        """Why the server gives no index, until it does."""
        self.lost = False
        """The server gave the index to someone else while this process was cut off."""

    def acquire(self, keep_waiting: Callable[[], bool]) -> int | None:
        """Return the index; None when ``keep_waiting`` says no before there is one."""
        while self._index is None and keep_waiting():
            self.poll()
            self._dealer.wait(WAIT_SECONDS)
        return self._index

    def poll(self) -> None:
        """Renew when due, read answers; about 1 us when there is nothing to do."""
        now = time.monotonic()
        if now < self._renew_at and not self._timer.running:
            return
        while (frames := self._dealer.receive()) is not None:
            self._handle(frames[0], now)
        if now >= self._renew_at and (not self._timer.running or self._timer.due):
            self._ask()

    def close(self) -> None:
        """Give the index back and close."""
        self._dealer.send(encode(ReleaseIndex(run_id=self._run_id, holder=self._holder)))
        self._dealer.close(FAREWELL_SECONDS)

    def _ask(self) -> None:
        self._request_id += 1
        request = LeaseIndex(request_id=self._request_id, run_id=self._run_id, holder=self._holder, index=self._index)
        if not self._dealer.send(encode(request)):
            return  # not connected yet: ask at the next poll
        if self._timer.due:
            self._timer.restart()
        else:
            self._timer.start()

    def _handle(self, header: bytes | memoryview, now: float) -> None:
        try:
            message = decode_header(header)
        except MalformedMessage:
            return
        if isinstance(message, Refused):
            self.refused = message.reason
        elif isinstance(message, IndexLeased) and message.request_id == self._request_id:
            self._timer.reset()
            self.refused = None
            self.lost = self._index is not None and self._index != message.index
            if self._index is None:
                self._index = message.index
            self._renew_at = now + message.lease_seconds / 3
