"""A request that is repeated until it is answered: what every client of a server does, whatever it asks."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING

from herd.wire.backoff import RetryTimer
from herd.wire.codec import Frame, MalformedMessage, decode_header
from herd.wire.messages import Message, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from herd.wire.sockets import Dealer

CONNECTING_SECONDS = 0.01
"""Between attempts to send while there is no connection, or no room in its queue."""
WAIT_SECONDS = 0.05
"""Longest wait in one piece while a request has not left yet: how late a new connection is used."""


class RetryingRequest:
    """At most one request under way on a DEALER, sent again with doubling, jittered delays until it is answered.

    ``begin`` states a request, ``advance`` sends what is due, ``answers`` reads what came, ``answered`` ends the request. No call blocks.
    A request that could not leave, because there is no connection yet, is tried again soon and does not count as silence.

    Loses data: nothing of its own. A request or an answer that is lost with a connection is asked for again.
    """

    def __init__(
        self,
        dealer: Dealer,
        frames_of: Callable[[int], list[Frame]],
        *,
        renumbers: bool = True,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        """Begin with nothing to ask.

        Args:
            dealer: its socket; others may send on it too.
            frames_of: the request, given its id.
            renumbers: each repetition gets an id of its own, so that answers to older ones are recognised. False repeats the same id.
            clock: monotonic seconds.
            random: source of jitter.

        """
        self.refused: str | None = None
        """Why the server refuses this client, until it answers."""
        self.num_refused = 0
        """Refusals heard."""
        self.num_resent = 0
        """Requests sent again after silence."""
        self.num_malformed = 0
        """Answers that broke the protocol; the client counts those that break its own rules here too."""
        self.request_id = 0
        """Of the newest request; 0 before the first."""
        self.is_pending = False
        """A request is under way, or about to be."""
        self.is_sent = False
        """It has left this process."""
        self._dealer = dealer
        self._frames_of = frames_of
        self._renumbers = renumbers
        self._clock = clock
        self._timer = RetryTimer(clock, random or Random())
        self._not_before = 0.0

    @property
    def is_overdue(self) -> bool:
        """The answer has been awaited long enough to ask again."""
        return self._timer.due

    @property
    def rest_seconds(self) -> float:
        """Until an attempt to send may be worth while, where no answer can announce it."""
        return max(0.0, self._not_before - self._clock())

    def begin(self, *, at_once: bool = True) -> None:
        """Ask, under a new id: the next ``advance`` sends it; not ``at_once``: as if it had just been sent, and was lost."""
        self.is_pending = True
        self.is_sent = not at_once
        if not at_once:
            self._timer.start()
        if not self._renumbers:
            self.request_id += 1

    def pause(self, seconds: float) -> None:
        """Send nothing for so long."""
        self._not_before = self._clock() + seconds

    def advance(self) -> bool:
        """Send the request if it has not left, or again if its answer is overdue; tell whether it has left just now."""
        is_overdue = self._timer.due
        if not self.is_pending or (self.is_sent and not is_overdue) or self._clock() < self._not_before:
            return False
        if self._renumbers:
            self.request_id += 1
        self.is_sent = self._dealer.send(self._frames_of(self.request_id))
        if not self.is_sent:
            self.pause(CONNECTING_SECONDS)
        if is_overdue:
            self.num_resent += 1
            self._timer.restart()
        elif self.is_sent:
            self._timer.start()
        return self.is_sent

    def await_answer(self) -> None:
        """Note that something else was sent whose answer is awaited: its silence is overdue as that of a request is."""
        self._timer.start()

    def is_answer(self, message: Message) -> bool:
        """Tell whether ``message`` answers the request under way, and no older one."""
        return self.is_pending and getattr(message, "request_id", None) == self.request_id

    def answered(self) -> None:
        """Note that the answer came: nothing is awaited any more."""
        self._timer.reset()
        self.is_pending = self.is_sent = False
        self.refused = None

    def answers(self) -> Iterator[tuple[Message, list[memoryview]]]:
        """What the server said, with its payload frames. Refusals are noted here: the next server may take us, so the request goes on."""
        while (frames := self._dealer.receive()) is not None:
            try:
                message = decode_header(frames[0])
            except MalformedMessage:
                self.num_malformed += 1
                continue
            if not isinstance(message, Refused):
                yield message, frames[1:]
            elif message.request_id in {None, self.request_id}:
                self.refused = message.reason
                self.num_refused += 1


class RetryingClient:
    """A client whose every request is one `RetryingRequest` on one socket; sets both as it is made."""

    socket: Dealer
    """For a ``Poller`` and its byte counts."""
    _request: RetryingRequest

    @property
    def refused(self) -> str | None:
        """Why the server refuses this client, until it answers."""
        return self._request.refused

    @property
    def num_refused(self) -> int:
        """Refusals heard."""
        return self._request.num_refused

    @property
    def num_resent(self) -> int:
        """Requests sent again after silence."""
        return self._request.num_resent

    @property
    def num_malformed(self) -> int:
        """Answers that broke the protocol, or the client's own rules."""
        return self._request.num_malformed

    def close(self) -> None:
        """Close at once."""
        self.socket.close()
