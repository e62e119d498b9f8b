"""A parameter server's answers to requests. No I/O: a message with its payload frames goes in, and messages to send come out.

Requests are idempotent: a client without an answer repeats its request, so a lost answer only costs time. Root and replicas serve weights
in the same way, but only the root takes weights from learners and leases places to actors; replica.py has the replica's answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.protocols.weights.messages import (
    AgentEnded,
    AgentEndNoted,
    GetWeights,
    IndexLeased,
    LeaseIndex,
    NotModified,
    Published,
    PublishHeartbeat,
    PublishSlice,
    ReleaseIndex,
    SliceWanted,
    StalePublish,
    Weights,
)
from herd.rpc.codec import MalformedMessage
from herd.rpc.serving import Reply, RequestRefused
from herd_paramserver.leases import NoIndexFreeError
from herd_paramserver.store import InvalidSliceError, Outcome, Version

if TYPE_CHECKING:
    from herd.rpc.envelope import Message
    from herd.rpc.serving import Received
    from herd_paramserver.leases import Liveness, PlaceLeases
    from herd_paramserver.store import WeightsStore

Stores = tuple["WeightsStore", ...]
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
        if isinstance(message, GetWeights):
            return self._get_weights(message)
        if isinstance(message, PublishSlice) and len(received.payloads) != 1:
            raise MalformedMessage(f"{message.type} with {len(received.payloads)} payload frames", "array")
        return self._decide(received, now)

    def tick(self, now: float) -> None:  # noqa: B027  a replica has none
        """Remove expired state. Call it a few times per second."""

    @abstractmethod
    def _decide(self, received: Received, now: float) -> Answer:
        """Answer a request that only the root decides; see `answer`."""

    def _get_weights(self, request: GetWeights) -> Answer:
        store = self._stores[request.agent]
        weights = store.newer_than(Version(*request.have) if request.have is not None else None)
        if weights is None:
            held = store.visible.version if store.visible is not None else None
            return Answer(NotModified(id=request.id, held=held))
        lineage, updates = weights.version
        message = Weights(id=request.id, lineage=lineage, updates=updates, digests=weights.digests)
        return Answer(message, weights.payloads)


class RootHandler(RequestHandler):
    """Accepts slices, leases places, and tracks which agents have ended."""

    def __init__(self, *, stores: Stores, leases: PlaceLeases, liveness: Liveness) -> None:
        super().__init__(stores)
        self._leases = leases
        self._liveness = liveness

    def tick(self, now: float) -> None:
        """Return the indices of silent holders to the pool."""
        self._leases.expire(now)

    def _decide(self, received: Received, now: float) -> Answer:
        message = received.message
        match message:
            case PublishSlice():
                return self._publish(message, received.payloads[0], now)
            case PublishHeartbeat():
                version = Version(message.lineage, message.updates)
                outcome = self._stores[message.agent].status(version, index=message.index, count=message.count)
                return self._answer_publisher(message, outcome, now)
            case AgentEnded():
                return self._agent_ended(message, now)
            case LeaseIndex():
                return self._lease(message, now)
            case ReleaseIndex():
                self._leases.release(message.client or "")
                return Answer()
            case _:
                raise AssertionError(f"{message.type} is no request")

    def _publish(self, request: PublishSlice, payload: memoryview, now: float) -> Answer:
        version = Version(request.lineage, request.updates)
        store = self._stores[request.agent]
        try:
            outcome = store.publish(version, index=request.index, count=request.count, digest=request.digest, payload=payload)
        except InvalidSliceError as error:
            if error.reason == "unexpected":
                # The slice is intact, so the publisher would repeat it forever. Tell it that this version exists already.
                return Answer(StalePublish(lineage=version.lineage, updates=version.updates))
            raise MalformedMessage(str(error), error.reason) from error
        return self._answer_publisher(request, outcome, now)

    def _answer_publisher(self, request: PublishSlice | PublishHeartbeat, outcome: Outcome, now: float) -> Answer:
        store = self._stores[request.agent]
        if outcome is Outcome.AHEAD:
            held = "no version" if store.visible is None else f"version ({store.visible.version.lineage}, {store.visible.version.updates})"
            reason = f"version ({request.lineage}, {request.updates}) is implausibly far ahead: this parameter server has {held}"
            raise RequestRefused("ahead", reason, request.id)
        if outcome is Outcome.STALE:
            newest = store.newest
            assert newest is not None
            return Answer(StalePublish(lineage=newest.lineage, updates=newest.updates))
        self._liveness.heard(request.agent, request.lineage, now)
        version = Version(request.lineage, request.updates)
        if outcome is Outcome.WANTED:
            return Answer(SliceWanted(lineage=version.lineage, updates=version.updates, index=request.index))
        published = Published(lineage=version.lineage, updates=version.updates, index=request.index)
        return Answer(published, new_version=version if outcome is Outcome.VISIBLE else None)

    def _agent_ended(self, request: AgentEnded, now: float) -> Answer:
        if self._stores[request.agent].is_ahead(Version(request.lineage, 0)):
            raise RequestRefused("ahead", f"no learner has opened lineage {request.lineage}", request.id)
        self._liveness.ended(request.agent, request.lineage, now)
        return Answer(AgentEndNoted(id=request.id))

    def _lease(self, request: LeaseIndex, now: float) -> Answer:
        try:
            place = self._leases.lease(request.client or "", now=now, wanted=request.place)
        except NoIndexFreeError as error:
            raise RequestRefused("full", str(error), request.id) from error
        return Answer(IndexLeased(id=request.id, place=place, lease_seconds=self._leases.lease_seconds))
