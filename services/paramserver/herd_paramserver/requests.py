"""A parameter server's answers to requests. No I/O: a message with its payload frames goes in, and messages to send come out.

Requests are idempotent: a client without an answer repeats its request, so a lost answer only costs time. Root and replicas serve weights
in the same way, but handle publications and leases differently (root.py, replica.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.protocols.weights.messages import (
    AgentEnded,
    GetWeights,
    LeaseIndex,
    NotModified,
    PublishHeartbeat,
    PublishSlice,
    ReleaseIndex,
    Weights,
)
from herd.rpc.codec import MalformedMessage
from herd.rpc.serving import Reply
from herd_paramserver.store import Version

if TYPE_CHECKING:
    from herd.rpc.envelope import Message
    from herd.rpc.serving import Received
    from herd.transport import Peer
    from herd_paramserver.store import WeightsStore

Payloads = tuple[memoryview, ...]
Stores = tuple["WeightsStore[memoryview]", ...]
"""Stores of all agents of the run, in order of their numbers."""


@dataclass(slots=True)
class Answer(Reply):
    """The reply to one request; it has no message if the root decides, or if the request needs no answer."""

    new_version: Version | None = None
    """The version of the named agent that this request made visible, if any."""
    to_parent: Message | None = None
    """What to ask the parent, because the root decides."""


class RequestHandler(ABC):
    """Answers the requests of one run."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def answer(self, received: Received, now: float) -> Answer:
        """Answer one request.

        Raises:
            MalformedMessage: the message is damaged; nothing has changed.
            RequestRefused: the server does not do what it asks.

        """
        message = received.message
        match message:
            case GetWeights():
                return self._get_weights(message)
            case PublishSlice():
                if len(received.payloads) != 1:
                    raise MalformedMessage(f"{message.type} with {len(received.payloads)} payload frames", "array")
                return self._publish(message, received.payloads[0], now)
            case PublishHeartbeat():
                return self._publish_heartbeat(message, now)
            case AgentEnded():
                return self._agent_ended(message, now)
            case LeaseIndex():
                return self._lease(message, received.peer, now)
            case ReleaseIndex():
                return self._release(message, received.peer, now)
            case _:
                raise AssertionError(f"{message.type} is no request")

    @abstractmethod
    def tick(self, now: float) -> None:
        """Remove expired state. Call it a few times per second."""

    @abstractmethod
    def _publish(self, request: PublishSlice, payload: memoryview, now: float) -> Answer: ...

    @abstractmethod
    def _publish_heartbeat(self, request: PublishHeartbeat, now: float) -> Answer: ...

    @abstractmethod
    def _agent_ended(self, request: AgentEnded, now: float) -> Answer: ...

    @abstractmethod
    def _lease(self, request: LeaseIndex, peer: Peer, now: float) -> Answer: ...

    @abstractmethod
    def _release(self, request: ReleaseIndex, peer: Peer, now: float) -> Answer: ...

    def _get_weights(self, request: GetWeights) -> Answer:
        store = self._stores[request.agent]
        weights = store.newer_than(Version(*request.have) if request.have is not None else None)
        if weights is None:
            held = store.visible.version if store.visible is not None else None
            return Answer(NotModified(id=request.id, held=held))
        lineage, updates = weights.version
        message = Weights(id=request.id, lineage=lineage, updates=updates, digests=weights.digests)
        return Answer(message, weights.payloads)
