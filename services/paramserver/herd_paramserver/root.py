"""The root of the tree: learners publish weights to it, and it leases places to actors. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.protocols.weights.messages import AgentEndNoted, IndexLeased, Published, SliceWanted, StalePublish
from herd.rpc.envelope import Refused
from herd_paramserver.leases import NoIndexFreeError
from herd_paramserver.requests import Reply, RequestHandler, UnfitMessage
from herd_paramserver.store import InvalidSliceError, Outcome, Version

if TYPE_CHECKING:
    from herd.protocols.weights.messages import AgentEnded, LeaseIndex, PublishHeartbeat, PublishSlice, ReleaseIndex
    from herd.transport import Peer
    from herd_paramserver.leases import PlaceLeases
    from herd_paramserver.liveness import Liveness
    from herd_paramserver.requests import Stores


class RootHandler(RequestHandler):
    """Accepts slices, leases places, and tracks which agents have ended."""

    def __init__(self, *, run_id: str, contract: str, stores: Stores, leases: PlaceLeases, liveness: Liveness) -> None:
        super().__init__(run_id=run_id, contract=contract, stores=stores)
        self._leases = leases
        self._liveness = liveness

    def tick(self, now: float) -> None:
        """Return the indices of silent holders to the pool."""
        self._leases.expire(now)

    def _publish(self, request: PublishSlice, payload: memoryview, now: float) -> Reply:
        version = Version(request.lineage, request.updates)
        store = self._stores[request.agent]
        try:
            outcome = store.publish(version, index=request.index, count=request.count, digest=request.digest, payload=payload)
        except InvalidSliceError as error:
            if error.reason == "unexpected":
                # The slice is intact, so the publisher would repeat it forever. Tell it that this version exists already.
                return Reply(StalePublish(lineage=version.lineage, updates=version.updates))
            raise UnfitMessage(error.reason, str(error)) from error
        return self._answer_publisher(request, outcome, now)

    def _publish_heartbeat(self, request: PublishHeartbeat, now: float) -> Reply:
        version = Version(request.lineage, request.updates)
        outcome = self._stores[request.agent].status(version, index=request.index, count=request.count)
        return self._answer_publisher(request, outcome, now)

    def _answer_publisher(self, request: PublishSlice | PublishHeartbeat, outcome: Outcome, now: float) -> Reply:
        store = self._stores[request.agent]
        if outcome is Outcome.AHEAD:
            held = "no version" if store.visible is None else f"version ({store.visible.version.lineage}, {store.visible.version.updates})"
            reason = f"version ({request.lineage}, {request.updates}) is implausibly far ahead: this parameter server has {held}"
            return Reply(Refused(request_id=None, reason=reason), refusal="ahead")
        if outcome is Outcome.STALE:
            newest = store.newest
            assert newest is not None
            return Reply(StalePublish(lineage=newest.lineage, updates=newest.updates))
        self._liveness.heard(request.agent, request.lineage, now)
        version = Version(request.lineage, request.updates)
        if outcome is Outcome.WANTED:
            return Reply(SliceWanted(lineage=version.lineage, updates=version.updates, index=request.index))
        published = Published(lineage=version.lineage, updates=version.updates, index=request.index)
        return Reply(published, new_version=version if outcome is Outcome.VISIBLE else None)

    def _agent_ended(self, request: AgentEnded, now: float) -> Reply:
        if self._stores[request.agent].is_ahead(Version(request.lineage, 0)):
            return Reply(Refused(request_id=request.request_id, reason=f"no learner has opened lineage {request.lineage}"), refusal="ahead")
        self._liveness.ended(request.agent, request.lineage, now)
        return Reply(AgentEndNoted(request_id=request.request_id))

    def _lease(self, request: LeaseIndex, peer: Peer, now: float) -> Reply:  # noqa: ARG002  only the holder matters, not the relaying peer
        try:
            wanted = None if request.agent is None or request.index is None else (request.agent, request.index)
            place = self._leases.lease(request.holder, now=now, wanted=wanted)
        except NoIndexFreeError as error:
            return Reply(Refused(request_id=request.request_id, reason=str(error)), refusal="full")
        agent, index = place
        return Reply(IndexLeased(request_id=request.request_id, agent=agent, index=index, lease_seconds=self._leases.lease_seconds))

    def _release(self, request: ReleaseIndex, peer: Peer, now: float) -> None:  # noqa: ARG002  as above
        self._leases.release(request.holder)
