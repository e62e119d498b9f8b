"""Messages between learners and replay; docs/messaging.md has the rules that go with them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from herd.rpc.codec import Conversation
from herd.rpc.envelope import TO_AGENT, Count, Fields, Message, Number, Role, WithPayload

MAX_INSERTED_RECORDS = 256
"""A message of more unrolls than this is rare, and checking as many takes a few milliseconds."""
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


class InsertPieces(WithPayload):
    """Learner to replay: what unrolls that it consumed add to episodes. One payload frame of records (`herd.protocols.replay.records`)."""

    senders: ClassVar[frozenset[Role]] = frozenset({"learner"})
    names: ClassVar[frozenset[str]] = TO_AGENT | {"id", "client"}
    """``id`` is 1, 2, ... of this client, the writer; together they identify the message permanently."""
    type: Literal["insert_pieces"] = "insert_pieces"
    oldest: Number
    """``id`` of the oldest message that this writer can still send."""
    num_records: Annotated[int, Field(ge=1, le=MAX_INSERTED_RECORDS)]


class Inserted(Message):
    """Replay to learner: the replica has every message of this writer up to ``sequence``."""

    type: Literal["inserted"] = "inserted"
    sequence: Count
    stored: StoredEpisodes


class SampleUnrolls(Message):
    """Learner to replay: requests a number of unrolls, drawn uniformly from all complete episodes."""

    senders: ClassVar[frozenset[Role]] = frozenset({"learner"})
    names: ClassVar[frozenset[str]] = TO_AGENT
    type: Literal["sample_unrolls"] = "sample_unrolls"
    num_unrolls: Annotated[int, Field(ge=1, le=MAX_SAMPLED_UNROLLS)]


class SampleEpisode(Message):
    """Learner to replay: requests the first part of an episode, which is drawn uniformly from all complete episodes."""

    senders: ClassVar[frozenset[Role]] = frozenset({"learner"})
    names: ClassVar[frozenset[str]] = TO_AGENT
    type: Literal["sample_episode"] = "sample_episode"


class SamplePart(Message):
    """Learner to replay: requests the next part of an episode."""

    senders: ClassVar[frozenset[Role]] = frozenset({"learner"})
    names: ClassVar[frozenset[str]] = TO_AGENT
    type: Literal["sample_part"] = "sample_part"
    episode: tuple[Count, Count, Count, Count, Count]
    """Its key: agent, actor_index, process, environment_slot, episode_id."""
    first_step: Count
    """First step of the part."""


class Sampled(WithPayload):
    """Replay to learner: parts of episodes, in three payload frames. None while replay is empty, or if it no longer has the episode."""

    type: Literal["sampled"] = "sampled"
    num_parts: Annotated[int, Field(ge=0, le=MAX_SAMPLED_UNROLLS)]
    num_pieces: Count
    """Number of pieces of all parts."""
    stored: StoredEpisodes


REPLAY = Conversation("replay service", InsertPieces, Inserted, SampleUnrolls, SampleEpisode, SamplePart, Sampled)
