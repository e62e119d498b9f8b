"""Messages of the unroll stream; docs/messaging.md has the rules that go with them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import FailFast, Field

from herd.rpc.codec import Conversation
from herd.rpc.envelope import TO_AGENT, Count, Fields, Message, Number, Reason, Role, WithPayload

MAX_EPISODES = 4096
MAX_UNROLLS_PER_MESSAGE = 65_536
Compression = Literal["none", "lz4", "zstd"]
NumUnrolls = Annotated[int, Field(ge=1, le=MAX_UNROLLS_PER_MESSAGE)]


def actor_identity(actor_index: int, incarnation: int) -> str:
    """Return the routing identity that this incarnation of an actor uses with the learner."""
    return f"actor/{actor_index}/{incarnation:x}"


class EpisodeReport(Fields):
    """One finished game."""

    task_id: Count
    environment_slot: Count
    episode_id: Count
    episode_return: float
    """Raw undiscounted sum of rewards."""
    agent_steps: Count


class Hello(Message):
    """Actor to learner: opens or reopens a session."""

    senders: ClassVar[frozenset[Role]] = frozenset({"actor"})
    names: ClassVar[frozenset[str]] = TO_AGENT
    type: Literal["hello"] = "hello"
    actor_index: Count
    incarnation: Count
    """Random number of this start of the stream (R7)."""
    max_unrolls: NumUnrolls
    """Most unrolls that one of its messages will contain."""
    oldest_sequence: Number
    """Oldest message that it can still send; the next new one if it keeps none."""


class Unrolls(WithPayload):
    """Actor to learner: the unrolls that ended at the same time, with one payload frame per field of the layout."""

    senders: ClassVar[frozenset[Role]] = frozenset({"actor"})
    type: Literal["unrolls"] = "unrolls"
    sequence: Number
    """1, 2, ... within the incarnation."""
    generated_frames: Count
    """Env frames, cumulative over the incarnation, this message included."""
    num_frames: Count
    """Env frames of this message."""
    num_unrolls: NumUnrolls
    compression: Compression = "none"
    """How frames that are shorter than their array are compressed; the others are sent as they are."""
    episodes: Annotated[tuple[EpisodeReport, ...], Field(max_length=MAX_EPISODES), FailFast()] = ()


class CreditRequest(Message):
    """Actor to learner: requests credit."""

    senders: ClassVar[frozenset[Role]] = frozenset({"actor"})
    type: Literal["credit_request"] = "credit_request"
    wanted_unrolls: Count
    """Grant that the actor needs, cumulative since the session began."""


class Goodbye(Message):
    """Actor to learner: ends the session and frees its credit. Learner to actor: the run is over, and no other learner will follow."""

    senders: ClassVar[frozenset[Role]] = frozenset({"actor"})
    type: Literal["goodbye"] = "goodbye"


class Welcome(Message):
    """Learner to actor: a session starts."""

    type: Literal["welcome"] = "welcome"
    accepted_sequence: Count
    """Last message that the learner has accepted from this incarnation."""
    granted_unrolls: Count
    """Cumulative since the session began, as in all answers of the learner."""


class Ack(Message):
    """Learner to actor: every message up to ``sequence`` is in the queue."""

    type: Literal["ack"] = "ack"
    sequence: Count
    granted_unrolls: Count


class Credit(Message):
    """Learner to actor: the session's current cumulative grant."""

    type: Literal["credit"] = "credit"
    granted_unrolls: Count


class HelloRequired(Message):
    """Learner to actor: not accepted (no session, out of sequence, or beyond the credit); the actor must send a hello."""

    type: Literal["hello_required"] = "hello_required"
    reason: Reason


class Rejected(Message):
    """Learner to actor: the message is dropped permanently and must not be sent again."""

    type: Literal["rejected"] = "rejected"
    sequence: Count
    reason: Reason
    granted_unrolls: Count


UNROLLS = Conversation("learner", Hello, Unrolls, CreditRequest, Goodbye, Welcome, Ack, Credit, HelloRequired, Rejected)
