"""An actor's lease of its place, an agent and an index among its actors, from the parameter server's root."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from herd.protocols.weights.messages import WEIGHTS, IndexLeased, LeaseIndex, Place, ReleaseIndex
from herd.rpc.codec import encode
from herd.rpc.envelope import MAX_HEADER_BYTES
from herd.rpc.request import RetryingClient, RetryingRequest
from herd.transport import Limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from herd.transport import Frame
    from herd.transport.context import Context

FAREWELL_SECONDS = 0.2
"""Maximum time to send the release from a closing process."""
WAIT_SECONDS = 0.25
"""Longest single wait while there is no place yet, so that the caller notices a signal."""


class IndexLease(RetryingClient):
    """Holds a place for as long as ``poll`` is called; renews it at a third of the lease's length.

    The server may answer a renewal with another place: its agent's run is over, another agent has too few actors, or another actor got
    this place while this process was disconnected. The actor then moves to the new one.

    Only ``acquire`` blocks. Loses data: a request or an answer, when a connection breaks; the request is repeated.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        run_id: str,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        """Start connecting; ``acquire`` waits for the place. ``random`` is the source of jitter, ``clock`` returns monotonic seconds."""
        self.place: Place | None = None
        """The place that the server gave last."""
        self._run_id = run_id
        self._holder = secrets.token_hex(16)
        self.socket = context.client(endpoint, f"index/{self._holder}", Limits(max_frame_bytes=MAX_HEADER_BYTES))
        self._clock = clock
        self._request = RetryingRequest(self.socket, WEIGHTS, self._question, clock=clock, random=random)
        self._renew_at = 0.0

    def acquire(self, keep_waiting: Callable[[], bool]) -> Place | None:
        """Return the place; None if ``keep_waiting`` returns False first."""
        while self.place is None and keep_waiting():
            self.poll()
            self.socket.wait(WAIT_SECONDS)
        return self.place

    def poll(self) -> None:
        """Renew the lease when due, and read answers. Takes about 1 us when there is nothing to do."""
        now = self._clock()
        if now < self._renew_at and not self._request.is_pending:
            return
        for message, _ in self._request.answers():
            if isinstance(message, IndexLeased) and self._request.is_answer(message):
                self._request.answered()
                self.place = Place(*message.place)
                self._renew_at = now + message.lease_seconds / 3
        if now >= self._renew_at and not self._request.is_pending:
            self._request.begin()
        self._request.advance()

    def close(self) -> None:
        """Release the place and close the socket."""
        self.socket.send(encode(ReleaseIndex(run=self._run_id, client=self._holder)))
        self.socket.close(FAREWELL_SECONDS)

    def _question(self, request_id: int) -> list[Frame]:
        return encode(LeaseIndex(id=request_id, run=self._run_id, client=self._holder, place=self.place))
