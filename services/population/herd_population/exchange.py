"""What a message to a population must be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.wire.codec import MalformedMessage
from herd.wire.messages import MemberReport

if TYPE_CHECKING:
    from herd.wire.messages import Message


def report_of(message: Message, *, num_payloads: int) -> MemberReport:
    """The report that a message is.

    Raises:
        MalformedMessage: it is none.
    """
    if num_payloads:
        raise MalformedMessage(f"{message.type} with {num_payloads} payload frames", "array")
    if not isinstance(message, MemberReport):
        raise MalformedMessage(f"{message.type} is not a population report", "unexpected")
    return message
