"""A replica's answers: it serves its weights, refuses publications and relays leases to the parent. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.protocols.weights.messages import IndexLeased
from herd.rpc.envelope import Refused
from herd.rpc.serving import RequestRefused
from herd_paramserver.relay import RingError
from herd_paramserver.requests import Answer, RequestHandler

if TYPE_CHECKING:
    from herd.protocols.weights.messages import AgentEnded, LeaseIndex, PublishHeartbeat, PublishSlice, ReleaseIndex
    from herd.rpc.envelope import Message
    from herd.transport import Peer
    from herd_paramserver.relay import RelayTable
    from herd_paramserver.requests import Stores


class ReplicaHandler(RequestHandler):
    """Answers clients like the root if it can, and asks the parent if only the root may decide."""

    def __init__(self, *, stores: Stores, relay: RelayTable, upstream: str) -> None:
        super().__init__(stores)
        self._relay = relay
        self._upstream = upstream

    def tick(self, now: float) -> None:
        """Remove relayed requests for which no client waits any more."""
        self._relay.expire(now)

    def answer_of_parent(self, message: Message) -> tuple[Peer, Message] | None:
        """Return the addressee of the parent's answer and the message for it; None if no client waits for it."""
        if not isinstance(message, IndexLeased | Refused) or (waiting := self._relay.answered(message.id)) is None:
            return None
        peer, request_id = waiting
        return peer, message.model_copy(update={"id": request_id})

    def _publish(self, request: PublishSlice, payload: memoryview, now: float) -> Answer:  # noqa: ARG002  refused unread
        raise self._no_learners(request)

    def _publish_heartbeat(self, request: PublishHeartbeat, now: float) -> Answer:  # noqa: ARG002  as above
        raise self._no_learners(request)

    def _agent_ended(self, request: AgentEnded, now: float) -> Answer:  # noqa: ARG002  as above
        raise self._no_learners(request)

    def _no_learners(self, request: Message) -> RequestRefused:
        reason = (
            f"this parameter server is a replica and accepts weights only from its parent {self._upstream}: "
            "give it the address of the root, which was started without --paramserver"
        )
        return RequestRefused("other", reason, request.id)

    def _lease(self, request: LeaseIndex, peer: Peer, now: float) -> Answer:
        try:
            relay_id = self._relay.pass_on(request.client or "", peer, now=now, request_id=request.id)
        except RingError as error:
            reason = f"{error}: the addresses given with --paramserver form a ring; the root needs none"
            raise RequestRefused("other", reason, request.id) from error
        return Answer(to_parent=request.model_copy(update={"id": relay_id}))

    def _release(self, request: ReleaseIndex, peer: Peer, now: float) -> Answer:
        try:
            self._relay.pass_on(request.client or "", peer, now=now)
        except RingError:
            return Answer()  # no client waits for an answer
        return Answer(to_parent=request)
