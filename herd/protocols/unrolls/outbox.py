"""The actor's side of flow control, without I/O: which messages to send, to keep and to send again.

Together with the learner's rules in docs/messaging.md it guarantees that every message put here is accepted exactly once and in order,
however often connections break.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from herd.protocols.unrolls.messages import Ack, Credit, Rejected, Welcome

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class OutboxMessage(Generic[P]):
    """A message kept until it is acknowledged."""

    sequence: int
    num_unrolls: int
    payload: P


class UnrollOutbox(Generic[P]):
    """Messages in sequence, with the credit of the current session.

    Usage: ``put`` new messages; while ``next_to_send`` returns a message, pass it to the socket and call ``mark_sent`` if that
    succeeded; report every answer. ``begin_hello`` stops sending until the welcome.
    """

    def __init__(self) -> None:
        self._kept: deque[OutboxMessage[P]] = deque()
        self._num_sent = 0  # number of kept messages sent in this session
        self._next_sequence = 1
        self._request_id: int | None = None
        self.welcomed = False
        """Whether a session is open."""
        self._used = 0
        self._granted = 0
        self._newest_sent = 0
        self.num_unrolls_resent = 0
        """Unrolls sent again in a later session."""

    @property
    def num_unacked(self) -> int:
        """Number of messages kept; their buffers must not change."""
        return len(self._kept)

    @property
    def num_unanswered(self) -> int:
        """Number of messages sent in this session and not acknowledged."""
        return self._num_sent

    @property
    def last_sequence(self) -> int:
        """Sequence number of the newest message put; 0 before the first."""
        return self._next_sequence - 1

    @property
    def acked_sequence(self) -> int:
        """Messages up to this one are acknowledged or rejected; their buffers are free."""
        return self.oldest_sequence - 1

    @property
    def oldest_sequence(self) -> int:
        """Sequence number of the oldest message that can still be sent; that of the next new message if none is kept."""
        return self._kept[0].sequence if self._kept else self._next_sequence

    def wanted_unrolls(self, num_unrolls: int) -> int:
        """Return the cumulative grant that permits one more message: the oldest unsent one, or a new one of ``num_unrolls``."""
        if self._num_sent < len(self._kept):
            num_unrolls = self._kept[self._num_sent].num_unrolls
        return self._used + num_unrolls

    @property
    def num_unsent(self) -> int:
        """Number of messages kept and not yet sent in this session."""
        return len(self._kept) - self._num_sent

    def can_send(self, num_unrolls: int) -> bool:
        """Return whether a new message of ``num_unrolls`` can be sent now: welcomed, all earlier messages sent, and enough credit."""
        return self.welcomed and self.num_unsent == 0 and self._used + num_unrolls <= self._granted

    def put(self, num_unrolls: int, payload: P) -> OutboxMessage[P]:
        """Keep a new message and assign it the next sequence number."""
        message = OutboxMessage(self._next_sequence, num_unrolls, payload)
        self._next_sequence += 1
        self._kept.append(message)
        return message

    def next_to_send(self) -> OutboxMessage[P] | None:
        """Return the oldest message not yet sent in this session, if session and credit allow it."""
        if not self.welcomed or self.num_unsent == 0:
            return None
        message = self._kept[self._num_sent]
        return message if self._used + message.num_unrolls <= self._granted else None

    def mark_sent(self) -> None:
        """Record that the socket accepted the message of ``next_to_send``."""
        message = self._kept[self._num_sent]
        if message.sequence <= self._newest_sent:
            self.num_unrolls_resent += message.num_unrolls
        self._newest_sent = max(self._newest_sent, message.sequence)
        self._used += message.num_unrolls
        self._num_sent += 1

    def begin_hello(self, request_id: int) -> None:
        """Close the session; only the welcome with ``request_id`` opens the next session."""
        self._request_id = request_id
        self.welcomed = False
        self._used = self._num_sent = 0

    def on_welcome(self, welcome: Welcome) -> bool:
        """Open the session: drop the messages that were accepted; the rest will be sent again.

        Returns:
            False, without any change, if it answers an older hello.

        """
        if self.welcomed or welcome.id != self._request_id:
            return False
        self._forget(welcome.accepted_sequence)
        self.welcomed = True
        self._granted = welcome.granted_unrolls
        return True

    # Between hello and welcome a grant belongs to an earlier session. The welcome overwrites it, and nothing is sent before then.

    def on_ack(self, ack: Ack) -> None:
        """Drop acknowledged messages, in whichever session they were sent."""
        self._forget(ack.sequence)
        self._granted = ack.granted_unrolls

    def on_credit(self, credit: Credit) -> None:
        """Set the session's cumulative grant."""
        self._granted = credit.granted_unrolls

    def on_rejected(self, rejected: Rejected) -> None:
        """Drop a message that the learner will never accept, and all messages before it."""
        self._forget(rejected.sequence)
        self._granted = rejected.granted_unrolls

    def _forget(self, sequence: int) -> None:
        while self._kept and self._kept[0].sequence <= sequence:
            self._kept.popleft()
            self._num_sent = max(0, self._num_sent - 1)
