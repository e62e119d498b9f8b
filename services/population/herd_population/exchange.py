"""Checks messages to a population."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.protocols.population.messages import MemberReport
from herd.rpc.codec import MalformedMessage

if TYPE_CHECKING:
    from herd.rpc.envelope import Message


def report_of(message: Message, *, num_payloads: int) -> MemberReport:
    """Return the report in a message.

    Raises:
        MalformedMessage: the message is not a report.
    """
    if num_payloads:
        raise MalformedMessage(f"{message.type} with {num_payloads} payload frames", "array")
    if not isinstance(message, MemberReport):
        raise MalformedMessage(f"{message.type} is not a population report", "unexpected")
    return message
