"""An actor's side of central inference: it requests actions for one row of environments at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from herd.protocols.inference.messages import INFERENCE, Act, Acted, StateWanted
from herd.protocols.inference.rows import ActedRows, ActingLayout, pack_fields, read_answer
from herd.rpc.codec import MalformedMessage, encode
from herd.rpc.request import RetryingClient, RetryingRequest
from herd.transport import Limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    import numpy as np
    from numpy.typing import NDArray

    from herd.contract.unroll import Array, UnrollLayout
    from herd.rpc.envelope import Message
    from herd.transport import Frame
    from herd.transport.context import Context

LONGEST_WAIT_SECONDS = 0.25
"""Longest single wait for an answer; bounds the delay of an overdue repetition."""
ANSWERS = 4
"""Maximum number of queued answers: to the request under way, and to its repetitions."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request."""

    rows: ActedRows
    version: tuple[int, int]
    """(lineage, learner updates) of the policy."""
    round_trip_seconds: float
    """Time since the request was made, including repetitions."""


def acting_identity(actor_index: int, incarnation: int, group: int) -> str:
    """Return the name under which the service keeps the states of one group of an actor's environments."""
    return f"inference/{actor_index}/{incarnation:x}/{group}"


class InferenceClient(RetryingClient):
    """Requests the actions of one group of environments, one request at a time. Used by one thread. Only ``poll`` may block.

    Loses data: none. If a request or its answer is lost, the request is repeated under its number, and the service repeats its answer.
    A service that does not know the environments, for example after a restart, gets their stacks and states.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        layout: UnrollLayout,
        run_id: str,
        agent: int,
        contract: str,
        actor_index: int,
        incarnation: int,
        group: int,
        num_environments: int,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        """Start connecting.

        Args:
            context: the process's.
            endpoint: the service's.
            layout: layout of the run's unrolls.
            run_id: name of the run.
            agent: the agent whose policy acts.
            contract: digest of the contract.
            actor_index: index of the actor.
            incarnation: incarnation of the actor.
            group: number of this group in the actor.
            num_environments: number of environments in the group.
            clock: monotonic seconds.
            random: source of jitter.

        """
        self.num_states_sent = 0
        """Requests that included stacks and states: the first one, and one for each time that the service did not know them."""
        self._layout = ActingLayout(layout)
        self._asking = partial(Act, run=run_id, agent=agent, contract=contract, num_environments=num_environments)
        self._num_environments = num_environments
        self._clock = clock
        answer_bytes = num_environments * sum(field.bytes_per_unroll for field in self._layout.answer_fields(has_state=True))
        name = acting_identity(actor_index, incarnation, group)
        self.socket = context.client(endpoint, name, Limits(max_frame_bytes=answer_bytes, high_water_mark=ANSWERS))
        self._request = RetryingRequest(self.socket, INFERENCE, self._question, renumbers=False, clock=clock, random=random)
        self._fields: dict[str, Array] = {}
        self._stacks: NDArray[np.uint8] | None = None
        self._wants_state = True
        self._frames: list[Frame] = []
        self._asked_at = 0.0
        self._knows_us = False

    @property
    def is_pending(self) -> bool:
        """Whether a request is under way."""
        return self._request.is_pending

    @property
    def silent_seconds(self) -> float:
        """Time since the request under way was made; 0 if there is none."""
        return self._clock() - self._asked_at if self._request.is_pending else 0.0

    def ask(self, fields: dict[str, Array], stacks: NDArray[np.uint8] | None, *, wants_state: bool) -> None:
        """Request the actions for a row, without waiting.

        Args:
            fields: [E, ...] by name, as in `ActingLayout.state_fields`.
            stacks: [E, S * C, H, W], must not change until the answer; None if observations have no frames.
            wants_state: whether the answer is to hold the state after the row. It does in any case if the request has to include one: a
                service that has just lost a state may lose it again.

        Raises:
            RuntimeError: another request is under way.
        """
        if self._request.is_pending:
            raise RuntimeError("a request was sent while another one is under way")
        self._fields, self._stacks, self._wants_state = fields, stacks, wants_state
        self._frames = []
        self._asked_at = self._clock()
        self._request.begin()
        self._request.advance()

    def poll(self, timeout_seconds: float = 0.0) -> Answer | None:
        """Return the answer; None if it does not arrive within ``timeout_seconds``."""
        return self._request.wait_for(self._handle, timeout_seconds, longest_seconds=LONGEST_WAIT_SECONDS)

    def _question(self, request_id: int) -> list[Frame]:
        if not self._frames:
            self._frames = self._encoded(request_id, has_state=not self._knows_us)
        return self._frames

    def _encoded(self, request_id: int, *, has_state: bool) -> list[Frame]:
        self._wants_state = self._wants_state or has_state
        message = self._asking(id=request_id, has_state=has_state, wants_state=self._wants_state)
        layout = self._layout
        frames = [*encode(message), pack_fields(layout.state_fields if has_state else layout.row_fields, self._fields)]
        shape = layout.planes_shape(has_state=has_state)
        if shape is not None and self._stacks is not None:
            # A copy, because the environments reuse their memory two steps later, while a repeated request may still be in the socket.
            frames.append(self._stacks[:, -shape[0] :].copy().reshape(-1).data)
        self.num_states_sent += has_state
        return frames

    def _handle(self, message: Message, payloads: list[memoryview]) -> Answer | None:
        match message:
            case Acted() if self._request.is_answer(message):
                try:
                    rows = read_answer(payloads, self._num_environments, self._layout, has_state=self._wants_state)
                except MalformedMessage:
                    self._request.num_malformed += 1  # the request is repeated when overdue
                    return None
                self._request.answered()
                self._knows_us = True
                return Answer(rows, (message.lineage, message.updates), self._clock() - self._asked_at)
            case StateWanted() if self._request.is_answer(message):
                self._knows_us = False
                self._frames = []
                self._request.is_sent = False  # send the same row again at once, with its state
                self._request.advance()
        return None
