"""The actor's end of the unroll stream: a DEALER with the outbox, for a thread that also steps environments."""

from __future__ import annotations

import secrets
import time
from functools import partial
from typing import TYPE_CHECKING

from herd.protocols.unrolls.arrays import pack_arrays
from herd.protocols.unrolls.messages import (
    UNROLLS,
    Ack,
    Credit,
    CreditRequest,
    EpisodeReport,
    Goodbye,
    Hello,
    HelloRequired,
    Rejected,
    Unrolls,
    Welcome,
    actor_identity,
)
from herd.protocols.unrolls.outbox import UnrollOutbox
from herd.rpc.codec import encode
from herd.rpc.request import WAIT_SECONDS, RetryingClient, RetryingRequest
from herd.transport import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from herd.contract.unroll import Arrays, UnrollLayout
    from herd.protocols.unrolls.messages import Compression
    from herd.rpc.envelope import Message
    from herd.transport import Frame
    from herd.transport.context import Context

KEEP_ALIVE_SECONDS = 5.0
"""A twelfth of the credit's default expiry of 60 s; also the longest time before an actor notices a learner that went away silently."""
LONGEST_WAIT_SECONDS = 1.0
"""Longest single wait for credit; bounds the delay before a new connection is used."""
HELLO_INTERVAL_SECONDS = 0.1
"""If the learner requests another hello sooner than this after the last one, it is sent with back-off."""
FAREWELL_SECONDS = 0.2
"""Maximum time to send a goodbye from a closing process."""


class UnrollClient(RetryingClient):
    """Sends unrolls exactly once and in order, through learner restarts.

    No call blocks unless given a timeout. Call ``poll`` at least every few seconds, better at every environment step (about 4 us
    when nothing is due). Buffers handed to ``send_unrolls`` must not change until ``acked_sequence`` reaches the sequence it returned.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        layout: UnrollLayout,
        run_id: str,
        contract: str,
        actor_index: int,
        max_unrolls: int,
        agent: int = 0,
        compression: Compression = "none",
        incarnation: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        """Start connecting.

        Args:
            context: the process's.
            endpoint: address of the learner's unroll socket.
            layout: layout of the unrolls.
            run_id: name of the run.
            contract: digest of the contract.
            actor_index: index of this actor.
            max_unrolls: largest number of unrolls in one message.
            agent: the agent that the actor acts for.
            compression: compression of arrays of 4 KiB and more.
            incarnation: incarnation of this stream; None draws one.
            clock: monotonic seconds.
            random: source of jitter.

        """
        self.incarnation = secrets.randbits(63) if incarnation is None else incarnation
        self.blocked_seconds = 0.0
        """Time spent in ``wait_for_credit``."""
        self.num_rejected = 0
        """Number of messages that the learner dropped permanently."""
        self.run_is_over = False
        """Whether the learner sent a goodbye: further unrolls will not be trained on."""
        self.num_sessions = 0
        """Number of sessions opened."""
        self._layout = layout
        self._hello_of = partial(
            Hello,
            run=run_id,
            agent=agent,
            contract=contract,
            actor_index=actor_index,
            incarnation=self.incarnation,
            max_unrolls=max_unrolls,
        )
        self._max_unrolls = max_unrolls
        self._compression: Compression = compression
        self._clock = clock
        self._outbox: UnrollOutbox[list[Frame]] = UnrollOutbox()
        self.socket = context.client(
            endpoint, actor_identity(actor_index, self.incarnation), Limits(max_frame_bytes=layout.max_frame_bytes(max_unrolls))
        )
        self._request = RetryingRequest(self.socket, UNROLLS, self._hello_frames, clock=clock, random=random)
        self._request.begin()
        self.generated_frames = 0
        """Env frames handed to ``send_unrolls``."""
        self._num_wanted = 0  # unrolls of the next new message for which credit is requested
        self._asked_unrolls = 0  # in the session, cumulative
        self._asked_over = 0  # the number of the connection
        self._last_sent = self._last_hello = clock()

    @property
    def connected(self) -> bool:
        """Whether a session with the learner is open."""
        return self._outbox.welcomed

    @property
    def num_unacked(self) -> int:
        """Number of messages whose buffers must not change."""
        return self._outbox.num_unacked

    @property
    def acked_sequence(self) -> int:
        """Highest sequence up to which the buffers of messages are free."""
        return self._outbox.acked_sequence

    @property
    def num_unrolls_resent(self) -> int:
        """Number of unrolls sent again after a reconnection."""
        return self._outbox.num_unrolls_resent

    def connect(self, timeout_seconds: float = 0.0) -> bool:
        """Wait at most ``timeout_seconds`` for a session, or until the learner refuses; return whether there is one."""
        return self._poll_until(lambda: self.connected or self.refused is not None, timeout_seconds) and self.connected

    def request_credit(self, num_unrolls: int) -> None:
        """Request credit for a message of ``num_unrolls`` without waiting. A request a few steps ahead hides the round trip."""
        self._num_wanted = num_unrolls
        self._flush()

    def has_credit(self, num_unrolls: int) -> bool:
        """Return whether ``send_unrolls`` may send ``num_unrolls`` now."""
        return self._outbox.can_send(num_unrolls)

    def wait_for_credit(self, num_unrolls: int, timeout_seconds: float) -> bool:
        """Request credit and wait for it at most ``timeout_seconds``; the time is added to ``blocked_seconds``."""
        if self.has_credit(num_unrolls):
            return True
        start = self._clock()
        self._num_wanted = num_unrolls
        got_it = self._poll_until(lambda: self.has_credit(num_unrolls), timeout_seconds)
        self.blocked_seconds += self._clock() - start
        return got_it

    def send_unrolls(self, arrays: Arrays, *, num_frames: int, episodes: Sequence[EpisodeReport] = ()) -> int:
        """Send one message; large contiguous arrays are not copied.

        Args:
            arrays: every field of the layout, [U, *shape].
            num_frames: number of env frames: action_repeat x valid transitions.
            episodes: games that ended in these unrolls.

        Returns:
            The message's sequence.

        Raises:
            RuntimeError: there is not enough credit (see ``has_credit``).
            ValueError: an array is missing or does not fit the layout.

        """
        ordered = self._checked(arrays)
        num_unrolls = len(next(iter(ordered.values())))
        if not self.has_credit(num_unrolls):
            raise RuntimeError(f"no credit for {num_unrolls} unrolls; call wait_for_credit first")
        header = Unrolls(
            sequence=self._outbox.last_sequence + 1,
            generated_frames=self.generated_frames + num_frames,
            num_frames=num_frames,
            num_unrolls=num_unrolls,
            compression=self._compression,
            episodes=tuple(episodes),
        )
        message = self._outbox.put(num_unrolls, [*encode(header), *pack_arrays(ordered, self._compression)])
        self.generated_frames += num_frames
        self._num_wanted = 0
        self._flush()
        return message.sequence

    def poll(self, timeout_seconds: float = 0.0) -> None:
        """Handle answers and send what is due; wait for an answer at most ``timeout_seconds``."""
        self._flush()
        if timeout_seconds > 0.0:
            self.socket.wait(timeout_seconds)
        if self._receive():
            self._flush()

    def drain(self, timeout_seconds: float) -> bool:
        """Wait at most ``timeout_seconds`` until everything is acknowledged; return whether it is."""
        return self._poll_until(lambda: self.num_unacked == 0, timeout_seconds)

    def close(self) -> None:
        """Send a goodbye and close at once; call ``drain`` first to lose nothing."""
        self._send(Goodbye())
        self.socket.close(FAREWELL_SECONDS)

    def _checked(self, arrays: Arrays) -> Arrays:
        ordered = {}
        num_unrolls = None
        for field in self._layout.fields:
            array = arrays.get(field.name)
            if array is None or array.dtype != field.dtype or array.shape[1:] != field.shape:
                found = "missing" if array is None else f"{array.dtype} {array.shape}"
                raise ValueError(f"array {field.name} is {found}, expected {field.dtype} [U, *{field.shape}]")
            num_unrolls = len(array) if num_unrolls is None else num_unrolls
            if len(array) != num_unrolls or not 0 < num_unrolls <= self._max_unrolls:
                raise ValueError(f"array {field.name} has {len(array)} unrolls; at most {self._max_unrolls}, and as many in every array")
            ordered[field.name] = array
        return ordered

    def _poll_until(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        deadline = self._clock() + timeout_seconds
        self.poll()
        while not condition():
            remaining = deadline - self._clock()
            if remaining <= 0.0:
                return False
            waits_for_answer = self._outbox.welcomed or self._request.is_sent
            self.poll(min(remaining, LONGEST_WAIT_SECONDS if waits_for_answer else WAIT_SECONDS))
        return True

    def _receive(self) -> bool:
        received = False
        for message, _ in self._request.answers():
            received = True
            self._handle(message)
        return received

    def _handle(self, message: Message) -> None:
        match message:
            case Welcome() if self._outbox.on_welcome(message):
                self.num_sessions += 1
                self._asked_unrolls = 0
            case Ack():
                self._outbox.on_ack(message)
            case Rejected():
                self._outbox.on_rejected(message)
                self.num_rejected += 1
            case Credit():
                self._outbox.on_credit(message)
                if self._outbox.num_unanswered:
                    return  # not an answer to the unrolls: their timer keeps running
            case HelloRequired():
                self._on_hello_required()
                return
            case Goodbye():
                self.run_is_over = True
                return
            case _:
                return
        if self._outbox.welcomed:
            self._request.answered()
            if self._outbox.num_unanswered:
                self._request.await_answer()

    def _on_hello_required(self) -> None:
        if not self._outbox.welcomed:
            return  # another answer of the same session; a hello is under way
        self._outbox.begin_hello(self._request.request_id)
        self._request.begin(at_once=self._clock() - self._last_hello >= HELLO_INTERVAL_SECONDS)

    def _flush(self) -> None:
        if self._request.is_overdue and not self._request.is_pending:
            self._request.begin()  # a message of this session was not answered
        self._request.advance()
        if not self._outbox.welcomed:
            return
        while (message := self._outbox.next_to_send()) is not None and self.socket.send(message.payload):
            self._outbox.mark_sent()
            self._request.await_answer()
            self._last_sent = self._clock()
        self._ask_for_credit()

    def _ask_for_credit(self) -> None:
        lacks = bool(self._outbox.num_unsent or self._num_wanted) and not self._outbox.can_send(self._num_wanted)
        wanted = self._outbox.wanted_unrolls(self._num_wanted) if lacks else self._asked_unrolls
        # A new connection may lead to a restarted learner, which has forgotten the session.
        connection = self.socket.num_connections
        is_due = connection != self._asked_over or self._clock() - self._last_sent >= KEEP_ALIVE_SECONDS
        if wanted > self._asked_unrolls or is_due:
            self._asked_over = connection
            self._asked_unrolls = max(self._asked_unrolls, wanted)
            if self._send(CreditRequest(wanted_unrolls=self._asked_unrolls)):
                self._request.await_answer()
            else:
                self._asked_unrolls = 0  # not connected: request it later

    def _hello_frames(self, request_id: int) -> list[Frame]:
        """Return a hello that is sent now; only the welcome to it opens the next session."""
        self._outbox.begin_hello(request_id)
        self._last_hello = self._clock()
        return encode(self._hello_of(id=request_id, oldest_sequence=self._outbox.oldest_sequence))

    def _send(self, message: Message) -> bool:
        if not self.socket.send(encode(message)):
            return False
        self._last_sent = self._clock()
        return True
