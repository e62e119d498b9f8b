"""What a parameter server answers to each request. No I/O: a message and its payload frames in, what to send out; the clock is passed in.

Requests are idempotent: a client that hears nothing asks again, so an answer may be lost at no cost but time. Root and replicas
give weights alike; they differ in what they do with publications and leases (root.py, replica.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.wire.codec import MalformedMessage, printable
from herd.wire.messages import GetWeights, LeaseIndex, NotModified, PublishHeartbeat, PublishSlice, Refused, ReleaseIndex, Weights
from herd_paramserver.store import Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.wire.messages import Message
    from herd_paramserver.store import WeightsStore

Payloads = tuple[memoryview, ...]


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
    """The version that this request made visible, if it did."""
    refusal: str = "other"
    """Of a ``Refused``: the label of the refused-messages counter."""


@dataclass(frozen=True, slots=True)
class ToParent:
    """One message to the parent: the root decides."""

    message: Message


Action = Reply | ToParent


class RequestHandler(ABC):
    """Serves one run: requests of another run or contract are refused with a reason."""

    def __init__(self, *, run_id: str, contract: str, store: WeightsStore[memoryview]) -> None:
        self._run_id = run_id
        self._contract = contract
        self._store = store

    def answer(self, message: Message, payloads: Sequence[memoryview], *, peer: bytes, now: float) -> Action | None:
        """Answer one request of the client ``peer``; None where nothing is due.

        Raises:
            UnfitMessage: not a request, or damaged; nothing changed.

        """
        if len(payloads) != isinstance(message, PublishSlice):
            raise UnfitMessage("array", f"{message.type} with {len(payloads)} payload frames")
        match message:
            case GetWeights():
                return self._mismatch(message.run_id, message.contract, message.request_id) or self._get_weights(message)
            case PublishSlice():
                return self._mismatch(message.run_id, message.contract) or self._publish(message, payloads[0])
            case PublishHeartbeat():
                return self._mismatch(message.run_id, message.contract) or self._publish_heartbeat(message)
            case LeaseIndex():
                return self._mismatch(message.run_id, None, message.request_id) or self._lease(message, peer, now)
            case ReleaseIndex():
                return self._release(message, peer, now) if message.run_id == self._run_id else None
            case _:
                raise UnfitMessage("unexpected", f"{message.type} is no request to a parameter server")

    @abstractmethod
    def tick(self, now: float) -> None:
        """Let go of what has run out; call it a few times a second."""

    @abstractmethod
    def _publish(self, request: PublishSlice, payload: memoryview) -> Reply: ...

    @abstractmethod
    def _publish_heartbeat(self, request: PublishHeartbeat) -> Reply: ...

    @abstractmethod
    def _lease(self, request: LeaseIndex, peer: bytes, now: float) -> Action: ...

    @abstractmethod
    def _release(self, request: ReleaseIndex, peer: bytes, now: float) -> Action | None: ...

    def _mismatch(self, run_id: str, contract: str | None, request_id: int | None = None) -> Reply | None:
        # A stranger's words go into answers and logs: shortened, and nothing that steers a terminal.
        theirs = printable(run_id, 64)
        if run_id != self._run_id:
            label = "run"
            reason = f"this parameter server belongs to run {self._run_id}, not {theirs}: check the paramserver address of run {theirs}"
        elif contract not in (None, self._contract):
            label = "contract"
            reason = (
                f"run {theirs}: contract {printable(contract or '', 12)} does not match the parameter server's {self._contract[:12]}: "
                "start every process of the run with the same env, network, unroll_length and reward_shaping settings"
            )
        else:
            return None
        return Reply(Refused(request_id=request_id, reason=reason), refusal=label)

    def _get_weights(self, request: GetWeights) -> Reply:
        weights = self._store.newer_than(Version(*request.have) if request.have is not None else None)
        if weights is None:
            held = self._store.visible.version if self._store.visible is not None else None
            return Reply(NotModified(request_id=request.request_id, held=held))
        lineage, updates = weights.version
        message = Weights(request_id=request.request_id, lineage=lineage, updates=updates, digests=weights.digests)
        return Reply(message, weights.payloads)
