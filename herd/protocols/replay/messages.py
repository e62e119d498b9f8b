"""Messages between learners and replay; docs/messaging.md has the rules that go with them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from herd.rpc.envelope import AgentNumber, ArrayHeaders, Count, Fields, Identifier, Message, Number, Role

MAX_UNROLLS_PER_INSERT = 32
MAX_SAMPLED_UNROLLS = 256


class StoredEpisodes(Fields):
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


class InsertUnrolls(Message):
    """Learner to replay: unrolls that it consumed. One payload frame per entry of ``arrays``, and one with the players of the unrolls."""

    senders: ClassVar[frozenset[Role]] = frozenset({"learner"})
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


class Inserted(Message):
    """Replay to learner: the replica has every message of this writer up to ``sequence``."""

    type: Literal["inserted"] = "inserted"
    writer: Count
    sequence: Count
    stored: StoredEpisodes


class SampleUnrolls(Message):
    """Learner to replay: requests a number of unrolls, drawn uniformly from all complete episodes."""

    senders: ClassVar[frozenset[Role]] = frozenset({"learner"})
    type: Literal["sample_unrolls"] = "sample_unrolls"
    request_id: Count
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier
    num_unrolls: Annotated[int, Field(ge=1, le=MAX_SAMPLED_UNROLLS)]


class SampleEpisode(Message):
    """Learner to replay: requests the first part of an episode, which is drawn uniformly from all complete episodes."""

    senders: ClassVar[frozenset[Role]] = frozenset({"learner"})
    type: Literal["sample_episode"] = "sample_episode"
    request_id: Count
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier


class SamplePart(Message):
    """Learner to replay: requests the next part of an episode."""

    senders: ClassVar[frozenset[Role]] = frozenset({"learner"})
    type: Literal["sample_part"] = "sample_part"
    request_id: Count
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier
    episode: tuple[Count, Count, Count, Count, Count]
    """Its key: agent, actor_index, process, environment_slot, episode_id."""
    first_step: Count
    """First step of the part."""


class Sampled(Message):
    """Replay to learner: parts of episodes, in three payload frames. None while replay is empty, or if it no longer has the episode."""

    type: Literal["sampled"] = "sampled"
    request_id: Count
    num_parts: Annotated[int, Field(ge=0, le=MAX_SAMPLED_UNROLLS)]
    num_pieces: Count
    stored: StoredEpisodes
