"""The root of the tree: the learner publishes here, and actor indices are leased here. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.wire.messages import IndexLeased, Published, Refused, SliceWanted, StalePublish
from herd_paramserver.leases import NoIndexFreeError
from herd_paramserver.requests import Reply, RequestHandler, UnfitMessage
from herd_paramserver.store import InvalidSliceError, Outcome, Version

if TYPE_CHECKING:
    from herd.wire.messages import LeaseIndex, PublishHeartbeat, PublishSlice, ReleaseIndex
    from herd_paramserver.leases import IndexLeases
    from herd_paramserver.store import WeightsStore


class RootHandler(RequestHandler):
    """Takes slices, leases indices."""

    def __init__(self, *, run_id: str, contract: str, store: WeightsStore[memoryview], leases: IndexLeases) -> None:
        super().__init__(run_id=run_id, contract=contract, store=store)
        self._leases = leases

    def tick(self, now: float) -> None:
        """Return the indices of silent holders to the pool."""
        self._leases.expire(now)

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

    def _lease(self, request: LeaseIndex, peer: bytes, now: float) -> Reply:  # noqa: ARG002  whoever passes it on, the holder counts
        try:
            index = self._leases.lease(request.holder, now=now, wanted=request.index)
        except NoIndexFreeError as error:
            return Reply(Refused(request_id=request.request_id, reason=str(error)), refusal="full")
        return Reply(IndexLeased(request_id=request.request_id, index=index, lease_seconds=self._leases.lease_seconds))

    def _release(self, request: ReleaseIndex, peer: bytes, now: float) -> None:  # noqa: ARG002  as above
        self._leases.release(request.holder)
