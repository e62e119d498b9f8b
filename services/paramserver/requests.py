"""What the server answers to each request. No I/O: a message and its payload frames in, a reply out; the clock is passed in.

Requests are idempotent: a client that hears nothing asks again, so an answer may be lost at no cost but time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.wire.codec import MalformedMessage
from herd.wire.messages import (
    GetWeights,
    IndexLeased,
    LeaseIndex,
    NotModified,
    Published,
    PublishHeartbeat,
    PublishSlice,
    Refused,
    ReleaseIndex,
    SliceWanted,
    StalePublish,
    Weights,
)
from services.paramserver.leases import NoIndexFreeError
from services.paramserver.store import InvalidSliceError, Outcome, Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.wire.messages import Message
    from services.paramserver.leases import IndexLeases
    from services.paramserver.store import WeightsStore

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


class RequestHandler:
    """Serves one run: requests of another run or contract are refused with a reason."""

    def __init__(self, *, run_id: str, contract: str, store: WeightsStore[memoryview], leases: IndexLeases) -> None:
        self._run_id = run_id
        self._contract = contract
        self._store = store
        self._leases = leases

    def answer(self, message: Message, payloads: Sequence[memoryview], *, now: float) -> Reply | None:
        """Answer one request; None where none is due.

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
                return self._mismatch(message.run_id, None, message.request_id) or self._lease(message, now)
            case ReleaseIndex():
                if message.run_id == self._run_id:
                    self._leases.release(message.holder)
                return None
            case _:
                raise UnfitMessage("unexpected", f"{message.type} is no request to a parameter server")

    def _mismatch(self, run_id: str, contract: str | None, request_id: int | None = None) -> Reply | None:
        if run_id != self._run_id:
            reason = f"this parameter server belongs to run {self._run_id}, not {run_id}: check the paramserver address of run {run_id}"
        elif contract not in (None, self._contract):
            reason = (
                f"run {run_id}: contract {(contract or '')[:12]} does not match the parameter server's {self._contract[:12]}: "
                "start every process of the run with the same env, network, unroll_length and reward_shaping settings"
            )
        else:
            return None
        return Reply(Refused(request_id=request_id, reason=reason))

    def _get_weights(self, request: GetWeights) -> Reply:
        weights = self._store.newer_than(Version(*request.have) if request.have is not None else None)
        if weights is None:
            held = self._store.visible.version if self._store.visible is not None else None
            return Reply(NotModified(request_id=request.request_id, held=held))
        lineage, updates = weights.version
        message = Weights(request_id=request.request_id, lineage=lineage, updates=updates, digests=weights.digests)
        return Reply(message, weights.payloads)

    def _publish(self, request: PublishSlice, payload: memoryview) -> Reply:
        version = Version(request.lineage, request.updates)
        try:
            outcome = self._store.publish(version, index=request.index, count=request.count, digest=request.digest, payload=payload)
        except InvalidSliceError as error:
            if error.reason == "unexpected":
                # Intact, so the publisher would send it for ever: tell it that this version is taken.
                return Reply(StalePublish(lineage=version.lineage, updates=version.updates))
            raise UnfitMessage(error.reason, str(error)) from error
        return self._answer_publisher(version, request.index, outcome)

    def _publish_heartbeat(self, request: PublishHeartbeat) -> Reply:
        version = Version(request.lineage, request.updates)
        return self._answer_publisher(version, request.index, self._store.status(version, index=request.index, count=request.count))

    def _answer_publisher(self, version: Version, index: int, outcome: Outcome) -> Reply:
        if outcome is Outcome.STALE:
            newest = self._store.newest
            assert newest is not None
            return Reply(StalePublish(lineage=newest.lineage, updates=newest.updates))
        if outcome is Outcome.WANTED:
            return Reply(SliceWanted(lineage=version.lineage, updates=version.updates, index=index))
        published = Published(lineage=version.lineage, updates=version.updates, index=index)
        return Reply(published, new_version=version if outcome is Outcome.VISIBLE else None)

    def _lease(self, request: LeaseIndex, now: float) -> Reply:
        try:
            index = self._leases.lease(request.holder, now=now, wanted=request.index)
        except NoIndexFreeError as error:
            return Reply(Refused(request_id=request.request_id, reason=str(error)))
        return Reply(IndexLeased(request_id=request.request_id, index=index, lease_seconds=self._leases.lease_seconds))
