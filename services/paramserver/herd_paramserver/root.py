"""The root of the tree: learners publish weights to it, and it leases places to actors. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.protocols.weights.messages import AgentEndNoted, IndexLeased, Published, SliceWanted, StalePublish
from herd.rpc.codec import MalformedMessage
from herd.rpc.serving import RequestRefused
from herd_paramserver.leases import NoIndexFreeError
from herd_paramserver.requests import Answer, RequestHandler
from herd_paramserver.store import InvalidSliceError, Outcome, Version

if TYPE_CHECKING:
    from herd.protocols.weights.messages import AgentEnded, LeaseIndex, PublishHeartbeat, PublishSlice, ReleaseIndex
    from herd.transport import Peer
    from herd_paramserver.leases import PlaceLeases
    from herd_paramserver.liveness import Liveness
    from herd_paramserver.requests import Stores


class RootHandler(RequestHandler):
    """Accepts slices, leases places, and tracks which agents have ended."""

    def __init__(self, *, stores: Stores, leases: PlaceLeases, liveness: Liveness) -> None:
        super().__init__(stores)
        self._leases = leases
        self._liveness = liveness

    def tick(self, now: float) -> None:
        """Return the indices of silent holders to the pool."""
        self._leases.expire(now)

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

    def _publish_heartbeat(self, request: PublishHeartbeat, now: float) -> Answer:
        version = Version(request.lineage, request.updates)
        outcome = self._stores[request.agent].status(version, index=request.index, count=request.count)
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

    def _lease(self, request: LeaseIndex, peer: Peer, now: float) -> Answer:  # noqa: ARG002  only the holder matters, not the relaying peer
        try:
            place = self._leases.lease(request.client or "", now=now, wanted=request.place)
        except NoIndexFreeError as error:
            raise RequestRefused("full", str(error), request.id) from error
        return Answer(IndexLeased(id=request.id, place=place, lease_seconds=self._leases.lease_seconds))

    def _release(self, request: ReleaseIndex, peer: Peer, now: float) -> Answer:  # noqa: ARG002  as above
        self._leases.release(request.client or "")
        return Answer()
