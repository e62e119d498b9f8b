"""A replica's answers: it serves its weights, refuses publications and relays leases to the parent. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.protocols.weights.messages import IndexLeased
from herd.rpc.envelope import Refused
from herd_paramserver.relay import RingError
from herd_paramserver.requests import Action, Reply, RequestHandler, ToParent

if TYPE_CHECKING:
    from herd.protocols.weights.messages import AgentEnded, LeaseIndex, PublishHeartbeat, PublishSlice, ReleaseIndex
    from herd.rpc.envelope import Message
    from herd.transport import Peer
    from herd_paramserver.relay import RelayTable
    from herd_paramserver.requests import Stores


class ReplicaHandler(RequestHandler):
    """Answers clients like the root if it can, and asks the parent if only the root may decide."""

    def __init__(self, *, run_id: str, contract: str, stores: Stores, relay: RelayTable, upstream: str) -> None:
        super().__init__(run_id=run_id, contract=contract, stores=stores)
        self._relay = relay
        self._upstream = upstream

    def tick(self, now: float) -> None:
        """Remove relayed requests for which no client waits any more."""
        self._relay.expire(now)

    def answer_of_parent(self, message: Message) -> tuple[Peer, Message] | None:
        """Return the addressee of the parent's answer and the message for it; None if no client waits for it."""
        if not isinstance(message, IndexLeased | Refused) or message.request_id is None:
            return None
        waiting = self._relay.answered(message.request_id)
        if waiting is None:
            return None
        peer, request_id = waiting
        return peer, message.model_copy(update={"request_id": request_id})

    def _publish(self, request: PublishSlice, payload: memoryview, now: float) -> Reply:  # noqa: ARG002  refused unread
        return self._no_learners()

    def _publish_heartbeat(self, request: PublishHeartbeat, now: float) -> Reply:  # noqa: ARG002  as above
        return self._no_learners()

    def _agent_ended(self, request: AgentEnded, now: float) -> Reply:  # noqa: ARG002  as above
        return self._no_learners(request.request_id)

    def _no_learners(self, request_id: int | None = None) -> Reply:
        reason = (
            f"this parameter server is a replica and accepts weights only from its parent {self._upstream}: "
            "give it the address of the root, which was started without --paramserver"
        )
        return Reply(Refused(request_id=request_id, reason=reason))

    def _lease(self, request: LeaseIndex, peer: Peer, now: float) -> Action:
        try:
            relay_id = self._relay.pass_on(request.holder, peer, now=now, request_id=request.request_id)
        except RingError as error:
            reason = f"{error}: the addresses given with --paramserver form a ring; the root needs none"
            return Reply(Refused(request_id=request.request_id, reason=reason))
        return ToParent(request.model_copy(update={"request_id": relay_id}))

    def _release(self, request: ReleaseIndex, peer: Peer, now: float) -> ToParent | None:
        try:
            self._relay.pass_on(request.holder, peer, now=now)
        except RingError:
            return None  # no client waits for an answer
        return ToParent(request)
