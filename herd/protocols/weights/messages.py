"""Messages between the parameter server, learners and actors; docs/messaging.md has the rules that go with them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import FailFast, Field

from herd.rpc.codec import Conversation
from herd.rpc.envelope import TO_AGENT, TO_RUN, AgentNumber, Count, Message, Role, Version, WithPayload

MAX_SLICES = 256
MAX_FIRST_LINEAGE = 2**61
"""Largest lineage that an empty server accepts, and that a learner takes from its run directory. Half of a publisher's limit
(``herd.protocols.weights.client.MAX_LINEAGE``)."""
Digest = Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]
SliceIndex = Annotated[int, Field(ge=0, lt=MAX_SLICES)]
SliceCount = Annotated[int, Field(ge=1, le=MAX_SLICES)]


class Place(NamedTuple):
    """The agent of the run that an actor acts for, and the actor's index among the agent's actors."""

    agent: int
    actor_index: int


class GetWeights(Message):
    """Client to parameter server: requests weights newer than ``have``."""

    senders: ClassVar[frozenset[Role]] = frozenset({"actor", "inference", "learner", "paramserver", "viewer"})
    names: ClassVar[frozenset[str]] = TO_AGENT
    type: Literal["get_weights"] = "get_weights"
    have: Version | None
    """(lineage, updates) of the weights that the client has; None if it has none."""


class Weights(WithPayload):
    """Parameter server to client: one payload frame per digest."""

    type: Literal["weights"] = "weights"
    lineage: Count
    updates: Count
    digests: Annotated[tuple[Digest, ...], Field(min_length=1, max_length=MAX_SLICES), FailFast()]


class NotModified(Message):
    """Parameter server to client: there are no newer weights."""

    type: Literal["not_modified"] = "not_modified"
    held: Version | None
    """(lineage, updates) of the complete version that the server has; None if it has none."""


class PublishSlice(WithPayload):
    """Learner to parameter server: one slice of a version, in one payload frame."""

    senders: ClassVar[frozenset[Role]] = frozenset({"learner"})
    names: ClassVar[frozenset[str]] = TO_AGENT
    type: Literal["publish_slice"] = "publish_slice"
    lineage: Count
    updates: Count
    index: SliceIndex
    count: SliceCount
    """Number of slices of the version, one for each shard."""
    digest: Digest
    """SHA-256 of the slice, in hexadecimal."""


class PublishHeartbeat(Message):
    """Learner to parameter server: asks whether the server still has this slice."""

    senders: ClassVar[frozenset[Role]] = frozenset({"learner"})
    names: ClassVar[frozenset[str]] = TO_AGENT
    type: Literal["publish_heartbeat"] = "publish_heartbeat"
    lineage: Count
    updates: Count
    index: SliceIndex
    count: SliceCount


class Published(Message):
    """Parameter server to learner: the server has this slice."""

    type: Literal["published"] = "published"
    lineage: Count
    updates: Count
    index: SliceIndex


class SliceWanted(Message):
    """Parameter server to learner: the server lacks this slice and requests it."""

    type: Literal["slice_wanted"] = "slice_wanted"
    lineage: Count
    updates: Count
    index: SliceIndex


class StalePublish(Message):
    """Parameter server to learner: the server holds this newer version."""

    type: Literal["stale_publish"] = "stale_publish"
    lineage: Count
    updates: Count


class AgentEnded(Message):
    """Learner to parameter server: the run of this agent is over, as of this lineage; it needs no more actors."""

    senders: ClassVar[frozenset[Role]] = frozenset({"learner"})
    names: ClassVar[frozenset[str]] = TO_AGENT
    type: Literal["agent_ended"] = "agent_ended"
    lineage: Count


class AgentEndNoted(Message):
    """Parameter server to learner: the end of the agent is noted."""

    type: Literal["agent_end_noted"] = "agent_end_noted"


class LeaseIndex(Message):
    """Actor to parameter server: requests or renews the lease of a place."""

    senders: ClassVar[frozenset[Role]] = frozenset({"actor", "paramserver"})
    names: ClassVar[frozenset[str]] = TO_RUN | {"client"}
    type: Literal["lease_index"] = "lease_index"
    place: tuple[AgentNumber, Count] | None
    """(agent, actor_index) that the actor has; None if it has none yet."""


class IndexLeased(Message):
    """Parameter server to actor: the leased agent and index; if they differ from those requested, the actor moves to them."""

    type: Literal["index_leased"] = "index_leased"
    place: tuple[AgentNumber, Count]
    """(agent, actor_index)."""
    lease_seconds: Annotated[float, Field(gt=0.0)]


class ReleaseIndex(Message):
    """Actor to parameter server: gives up the lease."""

    senders: ClassVar[frozenset[Role]] = frozenset({"actor", "paramserver"})
    names: ClassVar[frozenset[str]] = TO_RUN | {"client"}
    type: Literal["release_index"] = "release_index"


WEIGHTS = Conversation(
    "parameter server",
    *(GetWeights, Weights, NotModified, PublishSlice, PublishHeartbeat, Published, SliceWanted, StalePublish),
    *(AgentEnded, AgentEndNoted, LeaseIndex, IndexLeased, ReleaseIndex),
)
