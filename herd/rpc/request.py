"""Requests that are repeated until answered, the common part of all clients.

Delays double and have jitter, so that thousands of clients do not query a restarted server at once.
"""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, TypeVar

from herd.rpc.codec import MalformedMessage, OtherProtocol
from herd.rpc.envelope import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from herd.rpc.codec import Conversation
    from herd.rpc.envelope import Message
    from herd.transport import Client, Frame

R = TypeVar("R")

CONNECTING_SECONDS = 0.01
"""Interval between attempts to send while there is no connection, or no room in its queue."""
WAIT_SECONDS = 0.05
"""Longest single wait while a request has not been sent; bounds the delay before a new connection is used."""

FIRST_SECONDS = 1.0  # far longer than a round trip to a busy server, and short for a user who is watching
LONGEST_SECONDS = 10.0


class RetryTimer:
    """Runs from the first unanswered request; each firing doubles the delay, each answer resets it."""

    def __init__(self, clock: Callable[[], float], random: Random) -> None:
        self._clock = clock
        self._random = random
        self._delay_seconds = FIRST_SECONDS
        self._deadline: float | None = None

    def start(self) -> None:
        """Note that a request was sent; an earlier request keeps its deadline."""
        if self._deadline is None:
            self._deadline = self._clock() + self._delay_seconds * self._random.uniform(0.5, 1.5)

    def restart(self) -> None:
        """Note that the request was repeated: the next delay is twice as long."""
        self._delay_seconds = min(2 * self._delay_seconds, LONGEST_SECONDS)
        self._deadline = None
        self.start()

    def reset(self) -> None:
        """Note that the answer arrived: no request is pending."""
        self._delay_seconds = FIRST_SECONDS
        self._deadline = None

    @property
    def due(self) -> bool:
        """Whether it is time to repeat the request."""
        return self._deadline is not None and self._clock() >= self._deadline


class RetryingRequest:
    """At most one pending request on a DEALER, repeated with doubling, jittered delays until it is answered.

    ``begin`` sets a request, ``advance`` sends it when due, ``answers`` reads answers, ``answered`` ends the request. No call blocks.
    A request that could not be sent, because there is no connection yet, is retried soon and does not count as unanswered.

    Loses data: none. A request or an answer that is lost with a connection is requested again.
    """

    def __init__(
        self,
        dealer: Client,
        conversation: Conversation,
        frames_of: Callable[[int], list[Frame]],
        *,
        renumbers: bool = True,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        """Start without a request.

        Args:
            dealer: its socket; other senders may use it too.
            conversation: the messages that may arrive.
            frames_of: returns the request with the given id.
            renumbers: each repetition gets a new id, so that answers to older ones are recognised. False repeats the same id.
            clock: monotonic seconds.
            random: source of jitter.

        """
        self.refused: str | None = None
        """Reason for which the server refuses this client; None once it answers."""
        self.num_refused = 0
        """Refusals received."""
        self.num_malformed = 0
        """Answers that violate the protocol or, counted by the client, its own rules."""
        self.request_id = 0
        """Id of the newest request; 0 before the first."""
        self.is_pending = False
        """Whether a request is pending or about to be sent."""
        self.is_sent = False
        """Whether the request has been sent."""
        self._dealer = dealer
        self._conversation = conversation
        self._frames_of = frames_of
        self._renumbers = renumbers
        self._clock = clock
        self._timer = RetryTimer(clock, random or Random())
        self._not_before = 0.0

    @property
    def is_overdue(self) -> bool:
        """Whether the answer is overdue, so that the request must be repeated."""
        return self._timer.due

    @property
    def rest_seconds(self) -> float:
        """Return the seconds until the next attempt to send, if no answer comes first."""
        return max(0.0, self._not_before - self._clock())

    def begin(self, *, at_once: bool = True) -> None:
        """Start a request under a new id. The next ``advance`` sends it; without ``at_once``, only after the delay of an unanswered one."""
        self.is_pending = True
        self.is_sent = not at_once
        if not at_once:
            self._timer.start()
        if not self._renumbers:
            self.request_id += 1

    def pause(self, seconds: float) -> None:
        """Send nothing for this long."""
        self._not_before = self._clock() + seconds

    def advance(self) -> bool:
        """Send the request if it has not been sent or its answer is overdue; return whether it was sent now."""
        is_overdue = self._timer.due
        if not self.is_pending or (self.is_sent and not is_overdue) or self._clock() < self._not_before:
            return False
        if self._renumbers:
            self.request_id += 1
        self.is_sent = self._dealer.send(self._frames_of(self.request_id))
        if not self.is_sent:
            self.pause(CONNECTING_SECONDS)
        if is_overdue:
            self._timer.restart()
        elif self.is_sent:
            self._timer.start()
        return self.is_sent

    def await_answer(self) -> None:
        """Note that another message was sent whose answer is awaited; the same delay applies to it."""
        self._timer.start()

    def is_answer(self, message: Message) -> bool:
        """Return whether ``message`` answers the pending request, not an older one."""
        return self.is_pending and message.id == self.request_id

    def answered(self) -> None:
        """Note that the answer has arrived."""
        self._timer.reset()
        self.is_pending = self.is_sent = False
        self.refused = None

    def answers(self) -> Iterator[tuple[Message, list[memoryview]]]:
        """Yield the server's messages with their payload frames. A refusal does not end the request: another server may accept it."""
        while (frames := self._dealer.receive()) is not None:
            try:
                message = self._conversation.decode(frames[0])
            except OtherProtocol as error:
                self._note_refusal(error.reason)
            except MalformedMessage:
                self.num_malformed += 1
            else:
                if not isinstance(message, Refused):
                    yield message, frames[1:]
                elif message.id in {0, self.request_id}:
                    self._note_refusal(message.reason)

    def wait_for(
        self, result_of: Callable[[Message, list[memoryview]], R | None], timeout_seconds: float, *, longest_seconds: float
    ) -> R | None:
        """Return what ``result_of`` makes of an answer; None if the request ends without a result, or after ``timeout_seconds``.

        ``longest_seconds``: longest single wait for an answer, which bounds the delay of an overdue repetition.
        """
        deadline = self._clock() + timeout_seconds
        while self.is_pending:
            self.advance()
            for message, payloads in self.answers():
                if (result := result_of(message, payloads)) is not None:
                    return result
            left = deadline - self._clock()
            if not self.is_pending or left <= 0:
                break
            longest = longest_seconds if self.is_sent else max(CONNECTING_SECONDS, min(self.rest_seconds, WAIT_SECONDS))
            self._dealer.wait(min(left, longest))
        return None

    def _note_refusal(self, reason: str) -> None:
        self.refused = reason
        self.num_refused += 1


class RetryingClient:
    """A client that sends each request as a `RetryingRequest` on one socket; subclasses set both in their constructor."""

    socket: Client
    """The socket, for a ``Poller`` and its byte counts."""
    _request: RetryingRequest

    @property
    def refused(self) -> str | None:
        """Reason for which the server refuses this client; None once it answers."""
        return self._request.refused

    @property
    def num_refused(self) -> int:
        """Refusals received."""
        return self._request.num_refused

    @property
    def num_malformed(self) -> int:
        """Answers that violate the protocol or the client's own rules."""
        return self._request.num_malformed

    def close(self) -> None:
        """Close the socket at once."""
        self.socket.close()
