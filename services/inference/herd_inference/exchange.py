"""Decides about requests: accepted, answered again, or refused. No I/O, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from herd.protocols.inference.messages import Act, Acted, StateWanted
from herd.protocols.inference.rows import pack_fields, read_request
from herd.rpc.codec import MalformedMessage, encode
from herd.rpc.envelope import Refused
from herd.rpc.served_run import ServedRun
from herd_inference.sessions import Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.contract.unroll import Array
    from herd.protocols.inference.rows import ActingLayout, ActingRows
    from herd.rpc.envelope import Message
    from herd.transport import Frame, Peer
    from herd_inference.batches import Batches
    from herd_inference.sessions import Session, Sessions

Outcome = Literal["new", "repeated", "late", "state_wanted", "refused"]


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one message."""

    outcome: Outcome
    frames: Sequence[Frame] = ()
    """Frames to send at once; empty if there is no answer yet."""
    refusal: str | None = None


class ActingHandler:
    """Serves one run. A client of another run or contract is refused with a reason.

    A row is acted on once: a repeated request with the same number gets the same answer. A request that continues from an unknown row is
    answered with `state_wanted`. A request that contains the state replaces the state that is stored here.
    """

    def __init__(
        self,
        *,
        run_id: str,
        contract: str,
        num_agents: int,
        max_request: int,
        layout: ActingLayout,
        sessions: Sessions,
        batches: Batches,
    ) -> None:
        """``max_request``: largest number of environments of one request."""
        self._run = ServedRun("inference service", "--inference", run_id, contract, num_agents)
        self._max_request = max_request
        self._layout = layout
        self._sessions = sessions
        self._batches = batches

    def take(self, message: Message, payloads: Sequence[Frame], *, peer: Peer, now: float) -> Decision:
        """Decide about one message. A ``new`` request is added to ``batches``.

        Raises:
            MalformedMessage: the message is not a request to act, or has another layout; nothing has changed.
        """
        if not isinstance(message, Act):
            raise MalformedMessage(f"{message.type} is not a request to act", "unexpected")
        if (reason := self._mismatch(message)) is not None:
            return Decision("refused", encode(Refused(request_id=message.request_id, reason=reason)), reason)
        rows = read_request(message, payloads, self._layout)
        session = self._sessions.heard(peer)
        if session is not None and session.agent == message.agent and session.num_environments == message.num_environments:
            if message.request_id < session.last_id:
                return Decision("late")
            if message.request_id == session.last_id:
                return Decision("repeated", session.answer)  # no answer while it is acted on
            if message.has_state or (session.waiting is None and message.request_id == session.last_id + 1):
                return self._queue(session, message, rows, now)
        if not message.has_state:
            return Decision("state_wanted", encode(StateWanted(request_id=message.request_id)))
        return self._queue(self._sessions.open(peer, message.agent, message.num_environments), message, rows, now)

    def answer(self, request: Request, arrays: Mapping[str, Array], version: tuple[int, int]) -> list[Frame]:
        """Return the frames of the answer with ``arrays``, `ActingLayout.answer_fields` [E, ...]. They are kept until the next request."""
        lineage, updates = version
        message = Acted(request_id=request.request_id, lineage=lineage, updates=updates)
        frames = [*encode(message), pack_fields(self._layout.answer_fields, arrays)]
        request.session.answer = frames
        request.session.waiting = None
        return frames

    def _queue(self, session: Session, message: Act, rows: ActingRows, now: float) -> Decision:
        request = Request(session, message.request_id, rows, message.has_state, now)
        session.last_id, session.waiting, session.answer = message.request_id, request, []
        self._batches.add(request)
        return Decision("new")

    def _mismatch(self, message: Act) -> str | None:
        if (mismatch := self._run.mismatch(message.run_id, message.agent, message.contract)) is not None:
            return mismatch[1]
        if message.num_environments > self._max_request:
            return (
                f"a request of {message.num_environments} environments exceeds the limit of {self._max_request}: "
                "start all processes of the run with the same actor.environments"
            )
        return None
