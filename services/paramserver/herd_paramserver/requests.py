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
from herd.rpc.codec import MalformedMessage, OtherProtocol
from herd.rpc.envelope import Refused
from herd.rpc.served_run import ServedRun
from herd_paramserver.store import Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.rpc.envelope import Message
    from herd.transport import Peer
    from herd_paramserver.store import WeightsStore

Payloads = tuple[memoryview, ...]
Stores = tuple["WeightsStore[memoryview]", ...]
"""Stores of all agents of the run, in order of their numbers."""


class UnfitMessage(MalformedMessage):
    """A readable message that this server does not accept; ``label`` is the label of the malformed-messages counter."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(reason, label)


@dataclass(frozen=True, slots=True)
class Reply:
    """One message to the requesting client."""

    message: Message
    payloads: Payloads = ()
    """Payload frames after the header; for weights, the buffers of the store, without a copy."""
    new_version: Version | None = None
    """The version of the named agent that this request made visible, if any."""
    refusal: str = "other"
    """For a ``Refused``: the label of the refused-messages counter."""


@dataclass(frozen=True, slots=True)
class ToParent:
    """One message to the parent, because the root decides."""

    message: Message


Action = Reply | ToParent


class RequestHandler(ABC):
    """Serves one run. Requests of another run, agent, contract or protocol version are refused with a reason."""

    def __init__(self, *, run_id: str, contract: str, stores: Stores) -> None:
        self._run = ServedRun("parameter server", "--paramserver", run_id, contract, len(stores))
        self._stores = stores

    def answer(self, message: Message, payloads: Sequence[memoryview], *, peer: Peer, now: float) -> Action | None:
        """Answer one request of the client ``peer``; None if it needs no answer.

        Raises:
            UnfitMessage: the message is damaged or not a request; nothing has changed.

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
                raise UnfitMessage("unexpected", f"{message.type} is not a parameter server request")

    @abstractmethod
    def tick(self, now: float) -> None:
        """Remove expired state. Call it a few times per second."""

    @abstractmethod
    def _publish(self, request: PublishSlice, payload: memoryview, now: float) -> Reply: ...

    @abstractmethod
    def _publish_heartbeat(self, request: PublishHeartbeat, now: float) -> Reply: ...

    @abstractmethod
    def _agent_ended(self, request: AgentEnded, now: float) -> Reply: ...

    @abstractmethod
    def _lease(self, request: LeaseIndex, peer: Peer, now: float) -> Action: ...

    @abstractmethod
    def _release(self, request: ReleaseIndex, peer: Peer, now: float) -> Action | None: ...

    @staticmethod
    def other_protocol(error: OtherProtocol) -> Reply:
        """Answer a message of another protocol version."""
        return Reply(Refused(request_id=error.request_id, reason=error.reason), refusal="protocol")

    def _mismatch(self, request: GetWeights | PublishSlice | PublishHeartbeat | AgentEnded | LeaseIndex) -> Reply | None:
        ours = self._run
        if isinstance(request, LeaseIndex):
            # A request for another agent's index is not granted, but it does not deserve a refusal.
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
