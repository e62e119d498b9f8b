"""What becomes of a request: taken to be acted on, answered again, or sent back. No I/O, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from herd.wire.acting_rows import pack_fields, read_request
from herd.wire.codec import MalformedMessage, encode
from herd.wire.messages import Act, Acted, Refused, StateWanted
from herd.wire.served_run import ServedRun
from herd_inference.sessions import Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from herd.wire.acting_rows import ActingLayout, ActingRows
    from herd.wire.codec import Frame
    from herd.wire.layout import Array
    from herd.wire.messages import Message
    from herd_inference.batches import Batches
    from herd_inference.sessions import Session, Sessions

Outcome = Literal["new", "repeated", "late", "state_wanted", "refused"]


@dataclass(frozen=True, slots=True)
class Decision:
    """About one message."""

    outcome: Outcome
    frames: Sequence[Frame] = ()
    """To send at once; empty where there is nothing to say yet."""
    refusal: str | None = None


class ActingHandler:
    """Serves one run; a client of another run or contract is refused with a reason.

    A row is acted on once. Its request may come again: under the same number it gets the same answer. A request that goes on from a row
    that is not known here is answered `state_wanted`, and one that brings the state begins anew, whatever was known.
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
        """``max_request``: environments of one request, at most."""
        self._run = ServedRun("inference service", "actor.inference_service", run_id, contract, num_agents)
        self._max_request = max_request
        self._layout = layout
        self._sessions = sessions
        self._batches = batches

    def take(self, message: Message, payloads: Sequence[Frame], *, peer: bytes, now: float) -> Decision:
        """Decide about one message; a request that is ``new`` is among ``batches`` from now on.

        Raises:
            MalformedMessage: not a request to act, or not one of this run's layout; nothing changed.
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
                return Decision("repeated", session.answer)  # nothing to say while it is acted on
            if message.has_state or (session.waiting is None and message.request_id == session.last_id + 1):
                return self._queue(session, message, rows, now)
        if not message.has_state:
            return Decision("state_wanted", encode(StateWanted(request_id=message.request_id)))
        return self._queue(self._sessions.open(peer, message.agent, message.num_environments), message, rows, now)

    def answer(self, request: Request, arrays: Mapping[str, Array], version: tuple[int, int]) -> list[Frame]:
        """Frames of the answer: ``arrays`` [E, ...] are those of `ActingLayout.answer_fields`. They are kept until the next request."""
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
                f"a request of {message.num_environments} environments, and {self._max_request} are the most here: "
                "start every process of the run with the same actor.environments"
            )
        return None
