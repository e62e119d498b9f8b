"""What all messages of protocol version 3 have in common (docs/messaging.md has the rules that go with it)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from herd.config.run import MAX_AGENTS
from herd.transport import ALWAYS_ALLOWED_BYTES

PROTOCOL_VERSION: Literal[3] = 3
MAX_HEADER_BYTES = ALWAYS_ALLOWED_BYTES
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Number = Annotated[int, Field(ge=1, le=2**63 - 1)]
Identifier = Annotated[str, Field(min_length=1, max_length=128)]
Reason = Annotated[str, Field(max_length=1024)]
AgentNumber = Annotated[int, Field(ge=0, lt=MAX_AGENTS)]
"""Agent of the run: 0, 1, ... below the run's number of agents."""
Version = tuple[Count, Count]
"""(lineage, learner_updates), ordered lexicographically."""
Role = Literal["learner", "actor", "paramserver", "inference", "viewer"]
"""What a client is, if the name of its key says so (`herd.rpc.serving.role_of`). ``paramserver``: a replica, which sends requests to its
parent. ``inference``: the service, which requests weights. ``viewer``: an evaluator or another client that changes nothing."""
ROLES: tuple[Role, ...] = get_args(Role)
ENVELOPE_FIELDS = ("id", "run", "agent", "contract", "client")
"""Fields of the envelope that are left out of a header where they say nothing. ``version`` and ``type`` are in every header."""


class Fields(BaseModel):
    """Part of a message: strict and immutable."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Message(Fields):
    """A message: the fields of the envelope, which subclasses do not repeat, and its own fields, in one flat map.

    Subclasses set ``type``, by which a receiver finds them, and say in class variables who sends them and what they need.
    """

    senders: ClassVar[frozenset[Role]] = frozenset()
    """Roles of the clients that may send it; empty for what only servers send."""
    names: ClassVar[frozenset[str]] = frozenset()
    """Fields of the envelope that it must have. Requests name run, agent and contract; what follows in a session does not."""
    has_payload: ClassVar[bool] = False
    """Whether frames follow the header. If not, a receiver ignores unknown fields, so that a newer release may add optional ones; with a
    payload they are an error, because they could change its meaning. What must not be ignored needs a new version."""

    version: Literal[3] = PROTOCOL_VERSION
    type: str
    id: Count = 0
    """Number of a request, and of the request that an answer answers; 0 for neither."""
    run: Identifier | None = None
    agent: AgentNumber = 0
    contract: Identifier | None = None
    client: Identifier | None = None
    """Permanent name of the sender where it must outlive its connection."""

    def may_come_from(self, role: Role) -> bool:
        """Return whether a client of ``role`` may send this message."""
        return role in self.senders

    def header(self) -> dict[str, Any]:
        """Return the map that is sent."""
        fields = self.model_dump()
        for name in ENVELOPE_FIELDS:
            if not fields[name]:
                del fields[name]
        return fields


class WithPayload(Message):
    """A message with payload frames."""

    has_payload: ClassVar[bool] = True


TO_RUN = frozenset({"run"})
TO_AGENT = frozenset({"run", "contract"})
"""What a request names; the agent is 0 where it is left out."""


class Refused(Message):
    """Any server to any client: the server does not serve this client."""

    type: Literal["refused"] = "refused"
    reason: Reason
