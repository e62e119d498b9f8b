"""Messages between actors and the inference service; docs/messaging.md has the rules that go with them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from herd.protocols.unrolls.messages import MAX_UNROLLS_PER_MESSAGE
from herd.rpc.envelope import AgentNumber, Count, Identifier, Message, Number, Role


class Act(Message):
    """Actor to inference: requests an action for each of these environments. Payload: their rows, and planes if there are frames."""

    senders: ClassVar[frozenset[Role]] = frozenset({"actor"})
    type: Literal["act"] = "act"
    request_id: Number
    """1, 2, ... for the connection's name, incremented for each row; a repeated request keeps its number."""
    run_id: Identifier
    agent: AgentNumber
    contract: Identifier
    num_environments: Annotated[int, Field(ge=1, le=MAX_UNROLLS_PER_MESSAGE)]
    has_state: bool
    """The payload holds whole stacks and recurrent states, not just the newest planes, so that any replica can answer."""


class Acted(Message):
    """Inference to actor: one payload frame of actions, the logits that they were sampled from, and recurrent states after the row."""

    type: Literal["acted"] = "acted"
    request_id: Number
    lineage: Count
    updates: Count


class StateWanted(Message):
    """Inference to actor: the service lacks the previous row; the actor must ask again with stacks and states."""

    type: Literal["state_wanted"] = "state_wanted"
    request_id: Number
