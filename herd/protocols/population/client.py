"""A learner's report to the population's controller, and the orders that come back."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from herd.protocols.population.messages import POPULATION, MemberAnswer, MemberReport, Order
from herd.rpc.codec import encode
from herd.rpc.envelope import MAX_HEADER_BYTES
from herd.rpc.request import RetryingClient, RetryingRequest
from herd.transport import Limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from herd.transport import Frame
    from herd.transport.context import Context


class PopulationClient(RetryingClient):
    """Reports the newest standing every so often while ``poll`` is called, and keeps the order that was answered.

    One thread polls. Another may set ``standing`` and read ``order``: each is replaced whole. Never blocks.
    Loses data: a report or an answer when a connection breaks; the next report says all that the lost one did.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        interval_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        """Start connecting; ``random`` is the source of jitter, ``clock`` returns monotonic seconds."""
        self.standing: MemberReport | None = None
        """The newest; its ``id`` is filled in when it is sent."""
        self.order: Order | None = None
        """What the newest answer said."""
        self.socket = context.client(endpoint, f"population/{secrets.token_hex(8)}", Limits(max_frame_bytes=MAX_HEADER_BYTES))
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._due_at = 0.0
        self._sent: MemberReport | None = None
        self._heard: MemberReport | None = None
        self._request = RetryingRequest(self.socket, POPULATION, self._report, clock=clock, random=random)

    @property
    def is_heard(self) -> bool:
        """The newest standing was answered."""
        return self._heard is self.standing

    def report_now(self) -> None:
        """Do not wait for the next time."""
        self._due_at = 0.0

    def poll(self) -> None:
        """Read answers, report when it is time."""
        for message, payloads in self._request.answers():
            if isinstance(message, MemberAnswer) and not payloads and self._request.is_answer(message):
                self._request.answered()
                self.order = message.order
                self._heard = self._sent
        if self.standing is not None and not self._request.is_pending and self._clock() >= self._due_at:
            self._due_at = self._clock() + self._interval_seconds
            self._request.begin()
        self._request.advance()

    def _report(self, request_id: int) -> list[Frame]:
        assert self.standing is not None
        self._sent = self.standing
        return encode(self._sent.model_copy(update={"id": request_id}))
