"""Who may report: a member of this run, under this contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.wire.codec import MalformedMessage, printable
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


def objection(report: MemberReport, *, run_id: str, contract: str, num_members: int) -> str | None:
    """Why a report is not for this population, in one sentence; None if it is."""
    if report.run_id != run_id:
        theirs = printable(report.run_id, 64)  # a stranger's words go into answers and logs
        return f"this population belongs to run {run_id}, not {theirs}: check learner.population of run {theirs}"
    if report.contract != contract:
        return (
            f"run {run_id}: contract {printable(report.contract, 12)} does not match the population's {contract[:12]}: "
            "start every process of the run with the same env, network, unroll_length and reward_shaping settings"
        )
    if report.agent >= num_members:
        return f"this population has members 0 to {num_members - 1} (agents), not {report.agent}"
    return None
