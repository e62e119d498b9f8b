"""What a parameter server answers to each request. No I/O: a message and its payload frames in, what to send out; the clock is passed in.

Requests are idempotent: a client that hears nothing asks again, so an answer may be lost at no cost but time. Root and replicas
give weights alike; they differ in what they do with publications and leases (root.py, replica.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.wire.codec import MalformedMessage, OtherProtocol
from herd.wire.messages import (
    AgentEnded,
    GetWeights,
    LeaseIndex,
    NotModified,
    PublishHeartbeat,
    PublishSlice,
    Refused,
    ReleaseIndex,
    Weights,
)
from herd.wire.served_run import ServedRun
from herd_paramserver.store import Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.wire.messages import Message
    from herd_paramserver.store import WeightsStore

Payloads = tuple[memoryview, ...]
Stores = tuple["WeightsStore[memoryview]", ...]
"""By agent: all agents of the run, 0 first."""


class UnfitMessage(MalformedMessage):
    """Readable, but not what this server takes; ``label`` is the label of the malformed-messages counter."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(reason, label)


@dataclass(frozen=True, slots=True)
class Reply:
    """One message to the client that asked."""

    message: Message
    payloads: Payloads = ()
    """Behind the header; of weights, the very buffers that the store holds."""
    new_version: Version | None = None
    """The version that this request made visible, if it did; of the agent that it names."""
    refusal: str = "other"
    """Of a ``Refused``: the label of the refused-messages counter."""


@dataclass(frozen=True, slots=True)
class ToParent:
    """One message to the parent: the root decides."""

    message: Message


Action = Reply | ToParent


class RequestHandler(ABC):
    """Serves one run: requests of another run, agent, contract or protocol version are refused with a reason."""

    def __init__(self, *, run_id: str, contract: str, stores: Stores) -> None:
        self._run = ServedRun("parameter server", "actor.paramserver and learner.paramserver", run_id, contract, len(stores))
        self._stores = stores

    def answer(self, message: Message, payloads: Sequence[memoryview], *, peer: bytes, now: float) -> Action | None:
        """Answer one request of the client ``peer``; None where nothing is due.

        Raises:
            UnfitMessage: not a request, or damaged; nothing changed.

        """
        if len(payloads) != isinstance(message, PublishSlice):
            raise UnfitMessage("array", f"{message.type} with {len(payloads)} payload frames")
        match message:
            case GetWeights():
                return self._mismatch(message) or self._get_weights(message)
            case PublishSlice():
                return self._mismatch(message) or self._publish(message, payloads[0], now)
            case PublishHeartbeat():
                return self._mismatch(message) or self._publish_heartbeat(message, now)
            case AgentEnded():
                return self._mismatch(message) or self._agent_ended(message, now)
            case LeaseIndex():
                return self._mismatch(message) or self._lease(message, peer, now)
            case ReleaseIndex():
                return self._release(message, peer, now) if message.run_id == self._run.run_id else None
            case _:
                raise UnfitMessage("unexpected", f"{message.type} is no request to a parameter server")

    @abstractmethod
    def tick(self, now: float) -> None:
        """Let go of what has run out; call it a few times a second."""

    @abstractmethod
    def _publish(self, request: PublishSlice, payload: memoryview, now: float) -> Reply: ...

    @abstractmethod
    def _publish_heartbeat(self, request: PublishHeartbeat, now: float) -> Reply: ...

    @abstractmethod
    def _agent_ended(self, request: AgentEnded, now: float) -> Reply: ...

    @abstractmethod
    def _lease(self, request: LeaseIndex, peer: bytes, now: float) -> Action: ...

    @abstractmethod
    def _release(self, request: ReleaseIndex, peer: bytes, now: float) -> Action | None: ...

    @staticmethod
    def other_protocol(error: OtherProtocol) -> Reply:
        """Answer a message of another protocol version."""
        return Reply(Refused(request_id=error.request_id, reason=error.reason), refusal="protocol")

    def _mismatch(self, request: GetWeights | PublishSlice | PublishHeartbeat | AgentEnded | LeaseIndex) -> Reply | None:
        ours = self._run
        if isinstance(request, LeaseIndex):
            # The wish for another agent's index is none that anybody grants, and no mistake of this size is worth a refusal.
            mismatch = ours.mismatch(request.run_id, 0, ours.contract)
        else:
            mismatch = ours.mismatch(request.run_id, request.agent, request.contract)
        if mismatch is None:
            return None
        label, reason = mismatch
        return Reply(Refused(request_id=getattr(request, "request_id", None), reason=reason), refusal=label)

    def _get_weights(self, request: GetWeights) -> Reply:
        store = self._stores[request.agent]
        weights = store.newer_than(Version(*request.have) if request.have is not None else None)
        if weights is None:
            held = store.visible.version if store.visible is not None else None
            return Reply(NotModified(request_id=request.request_id, held=held))
        lineage, updates = weights.version
        message = Weights(request_id=request.request_id, lineage=lineage, updates=updates, digests=weights.digests)
        return Reply(message, weights.payloads)
