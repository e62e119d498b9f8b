"""Messages between learners and the population; docs/messaging.md has the rules that go with them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import FailFast, Field

from herd.components.settings import MAX_FLOAT
from herd.rpc.codec import Conversation
from herd.rpc.envelope import TO_AGENT, AgentNumber, Count, Fields, Identifier, Message, Number, Reason, Role

MAX_OWN_SETTINGS = 64
"""Maximum number of settings that a member of a population has."""


SinglePrecision = Annotated[float, Field(ge=-MAX_FLOAT, le=MAX_FLOAT)]
"""Another agent's learner computes with it in single precision, in which it must be finite too. MessagePack's integers always are."""


class OwnSetting(Fields):
    """A setting with its own value for each agent of the run."""

    key: Annotated[str, Field(min_length=1, max_length=128)]
    value: SinglePrecision | int | bool | Identifier | None


OwnSettings = Annotated[tuple[OwnSetting, ...], Field(max_length=MAX_OWN_SETTINGS), FailFast()]


class Applied(Fields):
    """The newest order that a member has carried out; its checkpoint on disk records it."""

    number: Number
    env_frames: Count
    """The member's own frames when it carried out the order."""
    learner_updates: Count


class Declined(Fields):
    """An order that a member could not carry out; no part of it was done."""

    number: Number
    reason: Reason


class MemberReport(Message):
    """Learner to population: the state of its agent, including the newest order carried out."""

    senders: ClassVar[frozenset[Role]] = frozenset({"learner"})
    names: ClassVar[frozenset[str]] = TO_AGENT
    type: Literal["member_report"] = "member_report"
    env_frames: Count
    learner_updates: Count
    num_episodes: Count
    """Games since the run began."""
    fitness: float | None
    """None while too few games have been played with these weights."""
    checkpoint: tuple[Count, Count] | None
    """(learner_updates, env_frames) of its newest checkpoint on disk."""
    settings: OwnSettings
    applied: Applied | None
    declined: Declined | None


class Copied(Fields):
    """The checkpoint to take weights, optimizer and value statistics from; a later checkpoint with the same number does not count."""

    donor: AgentNumber
    learner_updates: Count
    env_frames: Count
    applied: Count
    """Number of the newest order that the donor had carried out; 0 for none."""


class Order(Fields):
    """What a member is to do: copy the donor, if there is one, then continue under these settings."""

    number: Number
    copied: Copied | None
    settings: OwnSettings


class MemberAnswer(Message):
    """Population to learner: the member's order, repeated until the member reports it as applied or declined."""

    type: Literal["member_answer"] = "member_answer"
    order: Order | None


POPULATION = Conversation("population", MemberReport, MemberAnswer)
