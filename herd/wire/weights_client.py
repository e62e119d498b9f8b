"""Both ends of the weights exchange that are not the parameter server: who pulls weights, and who publishes them."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from herd.wire.backoff import RetryTimer
from herd.wire.codec import Frame, MalformedMessage, decode_header, encode, payload_digest
from herd.wire.messages import (
    GetWeights,
    Message,
    NotModified,
    Published,
    PublishHeartbeat,
    PublishSlice,
    Refused,
    SliceWanted,
    StalePublish,
    Weights,
)
from herd.wire.sockets import Context, Dealer

if TYPE_CHECKING:
    from collections.abc import Callable

Version: TypeAlias = tuple[int, int]
"""(lineage, learner_updates), ordered lexicographically."""

MAX_LINEAGE = 2**53
"""That a publisher goes beyond. Lineages are counted from 1, or are milliseconds since 1970 (2**41): a greater one is somebody's lie,
and who followed it would run out of numbers."""
MAX_SLICE_BYTES = 1 << 30
"""Of one slice: 268 M parameters in float32, 150 times the largest network here."""
PAUSE_SECONDS = 0.01
"""Between a 'nothing newer' and the next question: a caller that waits for an update costs the server 100 requests/s, not 5,000."""
EMPTY_PAUSE_SECONDS = 0.25
"""The same while the server has no weights at all: a run is starting, with all its actors asking."""
CONNECTING_SECONDS = 0.05
"""Between attempts to ask while there is no connection yet."""
HEARTBEAT_SECONDS = 1.0
"""Between questions whether the server still has what was published: how long a restarted one stays empty."""


@dataclass(frozen=True, slots=True)
class WeightsFrame:
    """One complete version."""

    lineage: int
    updates: int
    slices: tuple[memoryview, ...]
    """In slice order; read-only views of received memory."""
    digests: tuple[str, ...]
    """Hex SHA-256 of each slice; checked."""

    @property
    def version(self) -> Version:
        """(lineage, updates)."""
        return self.lineage, self.updates


class WeightsClient:
    """Asks a parameter server for newer weights, one request under way, answered in the background.

    Loses data: a request or an answer, when a connection breaks; it asks again with doubling, jittered delays.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        run_id: str,
        contract: str,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
        max_slice_bytes: int = MAX_SLICE_BYTES,
    ) -> None:
        """Start to connect; ``random`` is the source of jitter, ``clock`` gives monotonic seconds."""
        self.refused: str | None = None
        """Why the server refuses this client, until it answers."""
        self.held: Version | None = None
        """The newest version the server was heard to hold."""
        self.num_malformed = 0
        """Answers that broke the protocol, failed their digest, or would have taken us back."""
        self.num_refused = 0
        """Refusals heard."""
        self.routing_id = f"weights/{secrets.token_hex(8)}"
        """How the server knows this client."""
        self._run_id = run_id
        self._contract = contract
        self._clock = clock
        self._timer = RetryTimer(clock, random or Random())
        # Two answers in the queue at most: one to a request that was given up, one to the present one.
        self._dealer = Dealer(context, endpoint, routing_id=self.routing_id, max_frame_bytes=max_slice_bytes, high_water_mark=2)
        self._request_id = 0
        self._have: Version | None = None
        self._pending = False
        self._sent = False
        self._not_before = 0.0

    @property
    def pending(self) -> bool:
        """A request is under way."""
        return self._pending

    @property
    def socket(self) -> Dealer:
        """For a ``Poller`` and its byte counts."""
        return self._dealer

    @property
    def rest_seconds(self) -> float:
        """Until there is something to do that no answer announces: how long the owner of a poll loop may sleep."""
        return HEARTBEAT_SECONDS if self._sent else max(0.0, self._not_before - self._clock())

    def request(self, have: Version | None) -> None:
        """Ask for anything newer than ``have`` (None: anything) without waiting; does nothing while a request is under way."""
        if not self._pending:
            self._pending = True
            self._sent = False
            self._have = have
        self._advance()

    def poll(self, timeout_seconds: float = 0.0) -> WeightsFrame | None:
        """Return newer weights; None if the answer was that there are none, or there is no answer within ``timeout_seconds``."""
        deadline = self._clock() + timeout_seconds
        while self._pending:
            self._advance()
            while (frames := self._dealer.receive()) is not None:
                weights = self._handle(frames)
                if weights is not None:
                    return weights
            now = self._clock()
            if not self._pending or now >= deadline:
                break
            piece = HEARTBEAT_SECONDS if self._sent else max(PAUSE_SECONDS, min(self._not_before - now, CONNECTING_SECONDS))
            self._dealer.wait(min(deadline - now, piece))
        return None

    def close(self) -> None:
        """Close at once."""
        self._dealer.close()

    def _advance(self) -> None:
        due = self._timer.due
        if self._sent and not due:
            return
        if self._clock() < self._not_before:
            return
        self._request_id += 1
        request = GetWeights(request_id=self._request_id, run_id=self._run_id, contract=self._contract, have=self._have)
        self._sent = self._dealer.send(encode(request))
        if not self._sent:
            self._not_before = self._clock() + PAUSE_SECONDS  # no connection yet
        if due:
            self._timer.restart()
        elif self._sent:
            self._timer.start()

    def _handle(self, frames: list[memoryview]) -> WeightsFrame | None:
        try:
            message = decode_header(frames[0])
        except MalformedMessage:
            self.num_malformed += 1
            return None
        match message:
            case Weights() if message.request_id == self._request_id and self._pending:
                slices = tuple(frame.toreadonly() for frame in frames[1:])
                went_back = self._have is not None and (message.lineage, message.updates) <= self._have
                if went_back or tuple(map(payload_digest, slices)) != message.digests:
                    self.num_malformed += 1  # the timer asks again
                    return None
                self._answered()
                self.held = (message.lineage, message.updates)
                return WeightsFrame(message.lineage, message.updates, slices, message.digests)
            case NotModified() if message.request_id == self._request_id and self._pending:
                self._answered()
                self.held = message.held
                self._not_before = self._clock() + (EMPTY_PAUSE_SECONDS if message.held is None else PAUSE_SECONDS)
            case Refused() if message.request_id in {None, self._request_id}:
                self.refused = message.reason  # the timer runs on: the next server may take us
                self.num_refused += 1
        return None

    def _answered(self) -> None:
        self._timer.reset()
        self._pending = self._sent = False
        self.refused = None


@dataclass(slots=True)
class _Slice:
    """What is to be published; the header is made when it is first sent, so that a version nobody sends is not hashed."""

    lineage: int
    updates: int
    index: int
    count: int
    payload: Frame
    frames: list[Frame] | None = None
    confirmed: bool = False

    @property
    def key(self) -> tuple[int, int, int]:
        return self.lineage, self.updates, self.index


class WeightsPublisher:
    """Keeps the newest slice of one learner shard at the parameter server; one slice under way, the latest wins.

    Loses data: versions that a newer one overtakes before they leave, by design. The newest is sent until the server has it, and again
    when it lost it. Payloads must not change until the next version is confirmed.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        run_id: str,
        contract: str,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        """Start to connect; call ``poll`` at least every second."""
        self.newer_lineage: int | None = None
        """The lineage of a version at the server that ours does not exceed: publish in a greater one."""
        self.refused: str | None = None
        """Why the server refuses this learner, until it takes a slice."""
        self.num_malformed = 0
        """Answers that broke the protocol."""
        self._run_id = run_id
        self._contract = contract
        self._clock = clock
        self._timer = RetryTimer(clock, random or Random())
        # One slice under way and its repetitions: the queue never holds old versions for a server that is away.
        self._dealer = Dealer(context, endpoint, routing_id=f"publisher/{secrets.token_hex(8)}", max_frame_bytes=0, high_water_mark=2)
        self._current: _Slice | None = None
        self._under_way: tuple[int, int, int] | None = None
        self._heartbeat_at = 0.0

    @property
    def socket(self) -> Dealer:
        """For a ``Poller`` and its byte counts."""
        return self._dealer

    @property
    def confirmed(self) -> bool:
        """The server has the newest version."""
        return self._current is not None and self._current.confirmed

    @property
    def superseded(self) -> bool:
        """The server holds a newer lineage and will never take the newest version."""
        return self._current is not None and self._is_stale(self._current)

    def publish(self, lineage: int, updates: int, index: int, count: int, payload: Frame) -> None:
        """Make slice ``index`` of ``count`` of version (lineage, updates) the newest; sent now or as soon as the one before is through."""
        self._current = _Slice(lineage, updates, index, count, payload)
        self.poll()

    def poll(self) -> None:
        """Handle answers, send what is due; never blocks."""
        while (frames := self._dealer.receive()) is not None:
            try:
                message = decode_header(frames[0])
            except MalformedMessage:
                self.num_malformed += 1
                continue
            self._handle(message)
        current = self._current
        if current is None or self._is_stale(current):
            return
        if current.confirmed:
            self._beat(current)
        elif self._under_way is None or self._timer.due:
            self._send(current)

    def close(self) -> None:
        """Close at once."""
        self._dealer.close()

    def _is_stale(self, current: _Slice) -> bool:
        """Tell whether the server would not take ``current``; only a greater lineage helps."""
        return self.newer_lineage is not None and current.lineage <= self.newer_lineage

    def _send(self, current: _Slice) -> None:
        if current.frames is None:
            header = PublishSlice(
                run_id=self._run_id,
                contract=self._contract,
                lineage=current.lineage,
                updates=current.updates,
                index=current.index,
                count=current.count,
                digest=payload_digest(current.payload),
            )
            current.frames = [*encode(header), current.payload]
        due = self._timer.due
        if self._dealer.send(current.frames):
            self._under_way = current.key
            self._heartbeat_at = self._clock() + HEARTBEAT_SECONDS
        if due:
            self._timer.restart()
        elif self._under_way is not None:
            self._timer.start()

    def _beat(self, current: _Slice) -> None:
        now = self._clock()
        if now < self._heartbeat_at:
            return
        self._heartbeat_at = now + HEARTBEAT_SECONDS
        # A lost heartbeat is followed by another: no timer, no answer awaited.
        self._dealer.send(
            encode(
                PublishHeartbeat(
                    run_id=self._run_id,
                    contract=self._contract,
                    lineage=current.lineage,
                    updates=current.updates,
                    index=current.index,
                    count=current.count,
                )
            )
        )

    def _handle(self, message: Message) -> None:
        current = self._current
        match message:
            case Published():
                key = (message.lineage, message.updates, message.index)
                self.refused = None
                if key == self._under_way:
                    self._landed()
                if current is not None and key == current.key:
                    current.confirmed = True
            case SliceWanted() if current is not None and (message.lineage, message.updates, message.index) == current.key:
                current.confirmed = False
                self._landed()
            case StalePublish() if current is not None:
                # An answer about a version that ours has overtaken needs nothing but the next slice.
                self._landed()
                if message.lineage > MAX_LINEAGE:
                    self.refused = f"it holds lineage {message.lineage}, which no learner opened: restart it, and let nobody else publish"
                elif (message.lineage, message.updates) >= (current.lineage, current.updates):
                    self.newer_lineage = message.lineage
            case Refused():
                self.refused = message.reason  # the timer runs on: the next server may take us

    def _landed(self) -> None:
        self._under_way = None
        self._timer.reset()
