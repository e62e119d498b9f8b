"""What all messages of protocol version 2 have in common (docs/messaging.md has the rules that go with it)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, FailFast, Field, TypeAdapter

from herd.config.settings import MAX_AGENTS
from herd.transport import ALWAYS_ALLOWED_BYTES

PROTOCOL_VERSION: Literal[2] = 2
MAX_HEADER_BYTES = ALWAYS_ALLOWED_BYTES
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Number = Annotated[int, Field(ge=1, le=2**63 - 1)]
Identifier = Annotated[str, Field(min_length=1, max_length=128)]
Reason = Annotated[str, Field(max_length=1024)]
AgentNumber = Annotated[int, Field(ge=0, lt=MAX_AGENTS)]
"""Agent of the run: 0, 1, ... below the run's number of agents."""
Version = tuple[Count, Count]
"""(lineage, learner_updates), ordered lexicographically."""
MAX_ARRAYS = 32
MAX_DIMENSIONS = 8
Compression = Literal["none", "lz4", "zstd"]
DtypeCode = Literal["|u1", "|b1", "<i2", "<i4", "<i8", "<f4"]
Role = Literal["learner", "actor", "paramserver", "inference", "viewer"]
"""What a client is, if the name of its key says so (`herd.rpc.roles`). ``paramserver``: a replica, which sends requests to its parent.
``inference``: the service, which requests weights. ``viewer``: an evaluator or another client that changes nothing."""
ROLES: tuple[Role, ...] = get_args(Role)
TYPES: dict[str, type[Message]] = {}
"""The types of messages that this process knows."""


class Fields(BaseModel):
    """Part of a message: strict and immutable; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ArrayHeader(Fields):
    """Describes one payload frame of ``Unrolls``."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    dtype: DtypeCode
    shape: Annotated[tuple[Count, ...], Field(max_length=MAX_DIMENSIONS), FailFast()]
    compression: Compression = "none"


ArrayHeaders = Annotated[tuple[ArrayHeader, ...], Field(max_length=MAX_ARRAYS), FailFast()]
ARRAY_HEADERS: TypeAdapter[tuple[ArrayHeader, ...]] = TypeAdapter(ArrayHeaders)


class Message(Fields):
    """A header. Subclasses set ``type``, by which a receiver finds them."""

    senders: ClassVar[frozenset[Role]] = frozenset()
    """Roles of the clients that may send it; empty for what only servers send."""
    type: str

    def may_come_from(self, role: Role) -> bool:
        """Return whether a client of ``role`` may send this message."""
        return role in self.senders

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "type" in cls.__annotations__:
            TYPES[cls.model_fields["type"].default] = cls


class Refused(Message):
    """Any server to any client: the server does not serve this client."""

    type: Literal["refused"] = "refused"
    request_id: Count | None = None
    reason: Reason
