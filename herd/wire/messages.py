"""Headers of protocol version 2 as strict, immutable types (docs/messaging.md has the rules that go with them)."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import AllowInfNan, BaseModel, ConfigDict, FailFast, Field, SerializerFunctionWrapHandler, TypeAdapter, model_serializer

from herd.config.settings import MAX_AGENTS

PROTOCOL_VERSION: Literal[2] = 2

# The arithmetic behind these limits is in docs/messaging.md, "Frames".
MAX_HEADER_BYTES = 1 << 20
MAX_EPISODES = 4096
MAX_GAMES = 256
"""Games that one bandit exchange may end or begin: 35 ms of the bandit's time, so that no request delays the others for long."""
MAX_ARRAYS = 32
MAX_DIMENSIONS = 8
MAX_SLICES = 256
MAX_UNROLLS_PER_MESSAGE = 65_536
MAX_UNROLLS_PER_INSERT = 32
MAX_SAMPLED_UNROLLS = 256
MAX_OWN_SETTINGS = 64
"""Maximum number of settings that a member of a population has."""

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Number = Annotated[int, Field(ge=1, le=2**63 - 1)]
NumUnrolls = Annotated[int, Field(ge=1, le=MAX_UNROLLS_PER_MESSAGE)]
Identifier = Annotated[str, Field(min_length=1, max_length=128)]
Reason = Annotated[str, Field(max_length=1024)]
Digest = Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]
SliceIndex = Annotated[int, Field(ge=0, lt=MAX_SLICES)]
SliceCount = Annotated[int, Field(ge=1, le=MAX_SLICES)]
AgentNumber = Annotated[int, Field(ge=0, lt=MAX_AGENTS)]
"""Agent of the run: 0, 1, ... below the run's number of agents."""
Version = tuple[Count, Count]
"""(lineage, learner_updates), ordered lexicographically."""
Compression = Literal["none", "lz4", "zstd"]
AnyFloat = Annotated[float, AllowInfNan(True)]
"""May be NaN or infinite: one bad game must not make a message unreadable that reports other games too."""
DtypeCode = Literal["|u1", "|b1", "<i2", "<i4", "<i8", "<f4"]


def actor_identity(actor_index: int, incarnation: int) -> str:
    """Return the routing identity that this incarnation of an actor uses with the learner."""
    return f"actor/{actor_index}/{incarnation:x}"


class Place(NamedTuple):
    """The agent of the run that an actor acts for, and the actor's index among the agent's actors."""

    agent: int
    actor_index: int


class _Header(BaseModel):
    """Strict and immutable; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ArrayHeader(_Header):
    """Describes one payload frame of ``Unrolls``."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    dtype: DtypeCode
    shape: Annotated[tuple[Count, ...], Field(max_length=MAX_DIMENSIONS), FailFast()]
    compression: Compression = "none"


ArrayHeaders = Annotated[tuple[ArrayHeader, ...], Field(max_length=MAX_ARRAYS), FailFast()]
ARRAY_HEADERS: TypeAdapter[tuple[ArrayHeader, ...]] = TypeAdapter(ArrayHeaders)


class EpisodeReport(_Header):
    """One finished game."""

    task_id: Count
    environment_slot: Count
    episode_id: Count
    episode_return: float
    """Raw undiscounted sum of rewards."""
    agent_steps: Count


class Hello(_Header):
    """Actor to learner: opens or reopens a session."""

    type: Literal["hello"] = "hello"
    protocol: Literal[2] = PROTOCOL_VERSION
    """A hello of another version is invalid; the codec recognises it."""
    request_id: Count
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier
    actor_index: Count
    incarnation: Count
    max_unrolls: NumUnrolls
    oldest_sequence: Number


class Unrolls(_Header):
    """Actor to learner: all unrolls finished at the same time; one payload frame per entry of ``arrays``."""

    type: Literal["unrolls"] = "unrolls"
    sequence: Number
    generated_frames: Count
    """Env frames, cumulative over the incarnation, this message included."""
    num_frames: Count
    """Env frames of this message."""
    num_unrolls: NumUnrolls
    arrays: ArrayHeaders = ()
    episodes: Annotated[tuple[EpisodeReport, ...], Field(max_length=MAX_EPISODES), FailFast()] = ()


class CreditRequest(_Header):
    """Actor to learner: requests that its cumulative grant reach this number."""

    type: Literal["credit_request"] = "credit_request"
    wanted_unrolls: Count


class Goodbye(_Header):
    """Actor to learner: ends the session and frees its credit. Learner to actor: the run is over, and no other learner will follow."""

    type: Literal["goodbye"] = "goodbye"


class Welcome(_Header):
    """Learner to actor: a session starts."""

    type: Literal["welcome"] = "welcome"
    request_id: Count
    accepted_sequence: Count
    granted_unrolls: Count


class Ack(_Header):
    """Learner to actor: every message up to ``sequence`` is in the queue."""

    type: Literal["ack"] = "ack"
    sequence: Count
    granted_unrolls: Count


class Credit(_Header):
    """Learner to actor: the session's current cumulative grant."""

    type: Literal["credit"] = "credit"
    granted_unrolls: Count


class HelloRequired(_Header):
    """Learner to actor: not accepted (no session, out of sequence, or beyond the credit); the actor must send a hello."""

    type: Literal["hello_required"] = "hello_required"
    reason: Reason


class Rejected(_Header):
    """Learner to actor: this message is dropped permanently and must not be sent again."""

    type: Literal["rejected"] = "rejected"
    sequence: Count
    reason: Reason
    granted_unrolls: Count


class Refused(_Header):
    """Any server to any client: the server does not serve this client."""

    type: Literal["refused"] = "refused"
    request_id: Count | None = None
    reason: Reason


class GetWeights(_Header):
    """Client to parameter server: requests weights newer than ``have``."""

    type: Literal["get_weights"] = "get_weights"
    request_id: Count
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier
    have: Version | None


class Weights(_Header):
    """Parameter server to client: one payload frame per digest."""

    type: Literal["weights"] = "weights"
    request_id: Count
    lineage: Count
    updates: Count
    digests: Annotated[tuple[Digest, ...], Field(min_length=1, max_length=MAX_SLICES), FailFast()]


class NotModified(_Header):
    """Parameter server to client: there are no newer weights; ``held`` is the version that it serves, None for none."""

    type: Literal["not_modified"] = "not_modified"
    request_id: Count
    held: Version | None


class PublishSlice(_Header):
    """Learner to parameter server: one slice of a version, in one payload frame."""

    type: Literal["publish_slice"] = "publish_slice"
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier
    lineage: Count
    updates: Count
    index: SliceIndex
    count: SliceCount
    digest: Digest


class PublishHeartbeat(_Header):
    """Learner to parameter server: asks whether the server still has this slice."""

    type: Literal["publish_heartbeat"] = "publish_heartbeat"
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier
    lineage: Count
    updates: Count
    index: SliceIndex
    count: SliceCount


class Published(_Header):
    """Parameter server to learner: the server has this slice."""

    type: Literal["published"] = "published"
    lineage: Count
    updates: Count
    index: SliceIndex


class SliceWanted(_Header):
    """Parameter server to learner: the server lacks this slice and requests it."""

    type: Literal["slice_wanted"] = "slice_wanted"
    lineage: Count
    updates: Count
    index: SliceIndex


class StalePublish(_Header):
    """Parameter server to learner: the server holds this newer version."""

    type: Literal["stale_publish"] = "stale_publish"
    lineage: Count
    updates: Count


class AgentEnded(_Header):
    """Learner to parameter server: the run of this agent is over, as of this lineage; it needs no more actors."""

    type: Literal["agent_ended"] = "agent_ended"
    request_id: Count
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier
    lineage: Count


class AgentEndNoted(_Header):
    """Parameter server to learner: the end of the agent is noted."""

    type: Literal["agent_end_noted"] = "agent_end_noted"
    request_id: Count


class LeaseIndex(_Header):
    """Actor to parameter server: requests or renews the lease of an agent and an index; None if the actor has none yet."""

    type: Literal["lease_index"] = "lease_index"
    request_id: Count
    run_id: Identifier
    holder: Identifier
    agent: AgentNumber | None
    index: Count | None


class IndexLeased(_Header):
    """Parameter server to actor: the leased agent and index; if they differ from those requested, the actor moves to them."""

    type: Literal["index_leased"] = "index_leased"
    request_id: Count
    agent: AgentNumber
    index: Count
    lease_seconds: Annotated[float, Field(gt=0.0)]


class ReleaseIndex(_Header):
    """Actor to parameter server: gives up the lease."""

    type: Literal["release_index"] = "release_index"
    run_id: Identifier
    agent: AgentNumber | None
    holder: Identifier


class FinishedEpisode(_Header):
    """One finished game, as reported to the bandit."""

    task_id: Count
    environment_slot: Count
    episode_id: Count
    inverse_temperature: AnyFloat
    """1/tau of the whole game."""
    episode_return: AnyFloat
    """Raw undiscounted sum of rewards."""
    agent_steps: Count
    reused: bool
    """The game was played under the last temperature of its slot, because no answer came in time."""


class StartingEpisode(_Header):
    """One game that needs a temperature."""

    task_id: Count
    environment_slot: Count
    episode_id: Count


class HandedTemperature(_Header):
    """The temperature of one game."""

    environment_slot: Count
    episode_id: Count
    inverse_temperature: Annotated[float, Field(ge=0.0)]


class ExchangeTemperatures(_Header):
    """Actor or evaluator to bandit: the games that ended and the games that need temperatures."""

    type: Literal["exchange_temperatures"] = "exchange_temperatures"
    request_id: Number
    """1, 2, ... within the incarnation; a request sent again keeps its number."""
    run_id: Identifier
    contract: Identifier
    agent: AgentNumber
    incarnation: Count
    purpose: Literal["training", "evaluation"]
    finished: Annotated[tuple[FinishedEpisode, ...], Field(max_length=MAX_GAMES), FailFast()]
    starting: Annotated[tuple[StartingEpisode, ...], Field(max_length=MAX_GAMES), FailFast()]


class Temperatures(_Header):
    """Bandit to actor or evaluator: temperatures for the games that need them."""

    type: Literal["temperatures"] = "temperatures"
    request_id: Number
    handed: Annotated[tuple[HandedTemperature, ...], Field(max_length=MAX_GAMES), FailFast()]


class StoredEpisodes(_Header):
    """The complete episodes that a replica of the replay service holds."""

    num_episodes: Count
    num_unrolls: Count
    num_steps: Count
    """Agent steps."""
    num_discarded: Count = 0
    """Episodes that it could not keep since it started; not sent if there are none."""

    @model_serializer(mode="wrap")
    def _leave_out_none(self, serialize: SerializerFunctionWrapHandler) -> dict[str, int]:
        fields: dict[str, int] = serialize(self)
        if not self.num_discarded:
            del fields["num_discarded"]
        return fields


class InsertUnrolls(_Header):
    """Learner to replay: unrolls that it consumed. One payload frame per entry of ``arrays``, and one with the players of the unrolls."""

    type: Literal["insert_unrolls"] = "insert_unrolls"
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier
    writer: Count
    """Random; together with ``sequence`` it identifies this message permanently."""
    sequence: Number
    oldest_sequence: Number
    """Sequence number of the oldest message that this writer can still send."""
    num_unrolls: Annotated[int, Field(ge=1, le=MAX_UNROLLS_PER_INSERT)]
    arrays: ArrayHeaders = ()


class Inserted(_Header):
    """Replay to learner: the replica has every message of this writer up to ``sequence``."""

    type: Literal["inserted"] = "inserted"
    writer: Count
    sequence: Count
    stored: StoredEpisodes


class SampleUnrolls(_Header):
    """Learner to replay: requests a number of unrolls, drawn uniformly from all complete episodes."""

    type: Literal["sample_unrolls"] = "sample_unrolls"
    request_id: Count
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier
    num_unrolls: Annotated[int, Field(ge=1, le=MAX_SAMPLED_UNROLLS)]


class SampleEpisode(_Header):
    """Learner to replay: requests the first part of an episode, which is drawn uniformly from all complete episodes."""

    type: Literal["sample_episode"] = "sample_episode"
    request_id: Count
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier


class SamplePart(_Header):
    """Learner to replay: requests the next part of an episode."""

    type: Literal["sample_part"] = "sample_part"
    request_id: Count
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier
    episode: tuple[Count, Count, Count, Count, Count]
    """Its key: agent, actor_index, process, environment_slot, episode_id."""
    first_step: Count
    """First step of the part."""


class Sampled(_Header):
    """Replay to learner: parts of episodes, in three payload frames. None while replay is empty, or if it no longer has the episode."""

    type: Literal["sampled"] = "sampled"
    request_id: Count
    num_parts: Annotated[int, Field(ge=0, le=MAX_SAMPLED_UNROLLS)]
    num_pieces: Count
    stored: StoredEpisodes


class OwnSetting(_Header):
    """A setting with its own value for each agent of the run."""

    key: Annotated[str, Field(min_length=1, max_length=128)]
    value: float | int | bool | Identifier | None


OwnSettings = Annotated[tuple[OwnSetting, ...], Field(max_length=MAX_OWN_SETTINGS), FailFast()]


class Applied(_Header):
    """The newest order that a member has carried out; its checkpoint on disk records it."""

    number: Number
    env_frames: Count
    """The member's own frames when it carried out the order."""
    learner_updates: Count


class Declined(_Header):
    """An order that a member could not carry out; no part of it was done."""

    number: Number
    reason: Reason


class MemberReport(_Header):
    """Learner to population: the state of its agent, including the newest order carried out."""

    type: Literal["member_report"] = "member_report"
    request_id: Count
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier
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


class Copied(_Header):
    """The checkpoint to take weights, optimizer and value statistics from; a later checkpoint with the same number does not count."""

    donor: AgentNumber
    learner_updates: Count
    env_frames: Count
    applied: Count
    """Number of the newest order that the donor had carried out; 0 for none."""


class Order(_Header):
    """What a member is to do: copy the donor, if there is one, then continue under these settings."""

    number: Number
    copied: Copied | None
    settings: OwnSettings


class MemberAnswer(_Header):
    """Population to learner: the member's order, repeated until the member reports it as applied or declined."""

    type: Literal["member_answer"] = "member_answer"
    request_id: Count
    order: Order | None


class Act(_Header):
    """Actor to inference: requests an action for each of these environments. Payload: their rows, and planes if there are frames."""

    type: Literal["act"] = "act"
    request_id: Number
    """1, 2, ... for the connection's name, incremented for each row; a repeated request keeps its number."""
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier
    num_environments: Annotated[int, Field(ge=1, le=MAX_UNROLLS_PER_MESSAGE)]
    has_state: bool
    """The payload holds whole stacks and recurrent states, not just the newest planes, so that any replica can answer."""


class Acted(_Header):
    """Inference to actor: one payload frame of actions, the logits that they were sampled from, and recurrent states after the row."""

    type: Literal["acted"] = "acted"
    request_id: Number
    lineage: Count
    updates: Count


class StateWanted(_Header):
    """Inference to actor: the service lacks the previous row; the actor must ask again with stacks and states."""

    type: Literal["state_wanted"] = "state_wanted"
    request_id: Number


Message = (
    Hello
    | Unrolls
    | CreditRequest
    | Goodbye
    | Welcome
    | Ack
    | Credit
    | HelloRequired
    | Rejected
    | Refused
    | GetWeights
    | Weights
    | NotModified
    | PublishSlice
    | PublishHeartbeat
    | Published
    | SliceWanted
    | StalePublish
    | AgentEnded
    | AgentEndNoted
    | LeaseIndex
    | IndexLeased
    | ReleaseIndex
    | ExchangeTemperatures
    | Temperatures
    | InsertUnrolls
    | Inserted
    | SampleUnrolls
    | SampleEpisode
    | SamplePart
    | Sampled
    | MemberReport
    | MemberAnswer
    | Act
    | Acted
    | StateWanted
)

MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="type")])
"""Validates a decoded map into one of the types above."""
