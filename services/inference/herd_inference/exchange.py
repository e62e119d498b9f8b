"""Decides about requests: accepted, answered again, or refused. No I/O, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from herd.protocols.inference.messages import Act, Acted, StateWanted
from herd.protocols.inference.rows import pack_fields, read_request
from herd.rpc.serving import Received, Reply, RequestRefused
from herd_inference.sessions import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from herd.contract.unroll import Array
    from herd.protocols.inference.rows import ActingLayout, ActingRows
    from herd_inference.sessions import Batches, Session, Sessions

Outcome = Literal["new", "repeated", "late", "state_wanted"]


@dataclass(slots=True)
class Decision(Reply):
    """The reply to one request; it has no message if there is no answer yet."""

    outcome: Outcome = "new"


class ActingHandler:
    """The handler of requests to act.

    A row is acted on once: a repeated request with the same number gets the same answer. A request that continues from an unknown row is
    answered with `state_wanted`. A request that contains the state replaces the state that is stored here.
    """

    def __init__(
        self,
        *,
        max_request: int,
        layout: ActingLayout,
        sessions: Sessions,
        batches: Batches,
    ) -> None:
        """``max_request``: largest number of environments of one request."""
        self._max_request = max_request
        self._layout = layout
        self._sessions = sessions
        self._batches = batches

    def take(self, received: Received, now: float) -> Decision:
        """Decide about one message. A ``new`` request is added to ``batches``.

        Raises:
            MalformedMessage: the message has another layout; nothing has changed.
            RequestRefused: it has too many environments.
        """
        peer, message = received.peer, received.message
        assert isinstance(message, Act)
        if message.num_environments > self._max_request:
            reason = (
                f"a request of {message.num_environments} environments exceeds the limit of {self._max_request}: "
                "start all processes of the run with the same actor.environments"
            )
            raise RequestRefused("size", reason, message.id)
        rows = read_request(message, received.payloads, self._layout)
        session = self._sessions.heard(peer)
        if session is not None and session.agent == message.agent and session.num_environments == message.num_environments:
            if message.id < session.last_id:
                return Decision(outcome="late")
            # The same row may come with its state, from a client that has asked another replica meanwhile. It then needs the state back.
            if message.id == session.last_id and message.wants_state == session.wants_state:
                # No answer while it is acted on.
                return Decision(session.answer.message, session.answer.payloads, outcome="repeated")
            if message.has_state or (session.waiting is None and message.id == session.last_id + 1):
                return self._queue(session, message, rows, now)
        if not message.has_state:
            return Decision(StateWanted(id=message.id), outcome="state_wanted")
        return self._queue(self._sessions.open(peer, message.agent, message.num_environments), message, rows, now)

    def answer(self, request: Request, arrays: Mapping[str, Array], version: tuple[int, int]) -> Reply:
        """Return the answer, which is kept until the next request.

        ``arrays``: [E, ...] by name, `ActingLayout.answer_fields`, with the recurrent state if any request of the batch wants it.
        """
        lineage, updates = version
        message = Acted(id=request.request_id, lineage=lineage, updates=updates)
        fields = self._layout.answer_fields(has_state=request.wants_state)
        request.session.answer = Reply(message, [pack_fields(fields, arrays)])
        request.session.waiting = None
        return request.session.answer

    def _queue(self, session: Session, message: Act, rows: ActingRows, now: float) -> Decision:
        request = Request(session, message.id, rows, message.has_state, message.wants_state, now)
        session.last_id, session.wants_state, session.waiting, session.answer = message.id, message.wants_state, request, Reply()
        self._batches.add(request)
        return Decision()
