"""Messages between actors and the inference service; docs/messaging.md has the rules that go with them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from herd.protocols.unrolls.messages import MAX_UNROLLS_PER_MESSAGE
from herd.rpc.codec import Conversation
from herd.rpc.envelope import TO_AGENT, Count, Message, Role, WithPayload


class Act(WithPayload):
    """Actor to inference: requests an action for each of these environments. Payload: their rows, and planes if there are frames."""

    senders: ClassVar[frozenset[Role]] = frozenset({"actor"})
    names: ClassVar[frozenset[str]] = TO_AGENT | {"id"}
    """``id`` is 1, 2, ... for the connection's name, incremented for each row; a repeated request keeps its number."""
    type: Literal["act"] = "act"
    num_environments: Annotated[int, Field(ge=1, le=MAX_UNROLLS_PER_MESSAGE)]
    has_state: bool
    """The payload holds whole stacks and recurrent states, not just the newest planes, so that any replica can answer."""
    wants_state: bool
    """The answer is to hold the recurrent states after the row."""


class Acted(WithPayload):
    """Inference to actor: one payload frame of actions, their logits before the temperature, and recurrent states if requested."""

    type: Literal["acted"] = "acted"
    lineage: Count
    """Of the weights that chose the actions."""
    updates: Count


class StateWanted(Message):
    """Inference to actor: the service lacks the previous row; the actor must send the request again with stacks and states."""

    type: Literal["state_wanted"] = "state_wanted"


INFERENCE = Conversation("inference service", Act, Acted, StateWanted)
