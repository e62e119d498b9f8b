"""The clients of the parameter server: one requests weights, the other publishes them."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from herd.protocols.weights.messages import (
    WEIGHTS,
    AgentEnded,
    AgentEndNoted,
    GetWeights,
    NotModified,
    Published,
    PublishHeartbeat,
    PublishSlice,
    SliceWanted,
    StalePublish,
    Weights,
)
from herd.rpc.codec import encode, payload_digest
from herd.rpc.request import RetryingClient, RetryingRequest
from herd.transport import Limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from herd.rpc.envelope import Message
    from herd.transport import Frame
    from herd.transport.context import Context

Version: TypeAlias = tuple[int, int]
"""(lineage, learner_updates), ordered lexicographically."""

MAX_LINEAGE = 2**62
"""Largest lineage that a publisher goes beyond. Lineages are counted from 1, or are milliseconds since 1970 (2**41). A greater one is
invalid, and following it would exhaust the numbers. The root accepts no lineage near this limit."""
MAX_SLICE_BYTES = 1 << 30
"""Maximum size of one slice: 268 M parameters in float32, 150 times the largest network here."""
PAUSE_SECONDS = 0.01
"""Pause after an answer without newer weights: a caller that waits for an update costs the server 100 requests/s instead of 5,000."""
EMPTY_PAUSE_SECONDS = 0.25
"""The same while the server has no weights at all: the run is starting, and all its actors send requests."""
HEARTBEAT_SECONDS = 1.0
"""Interval of checks that the server still has the published weights; a restarted server stays empty at most this long."""


@dataclass(frozen=True, slots=True)
class WeightsFrame:
    """One complete version."""

    lineage: int
    updates: int
    slices: tuple[memoryview, ...]
    """The slices in order, as read-only views of received memory."""
    digests: tuple[str, ...]
    """Hex SHA-256 of each slice, already verified."""

    @property
    def version(self) -> Version:
        """(lineage, updates)."""
        return self.lineage, self.updates


class WeightsClient(RetryingClient):
    """Requests newer weights of one agent from a parameter server, one request at a time, without blocking.

    Loses data: a request or an answer, when a connection breaks. The request is repeated with doubling, jittered delays.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        run_id: str,
        contract: str,
        agent: int = 0,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
        max_slice_bytes: int = MAX_SLICE_BYTES,
        pause_seconds: float = PAUSE_SECONDS,
        name: str = "weights",
    ) -> None:
        """Start connecting.

        ``random`` is the source of jitter, ``clock`` returns monotonic seconds, ``pause_seconds``: see its default. ``name``: what this
        client is to the server.
        """
        self.held: Version | None = None
        """The newest version that the server is known to hold."""
        self.routing_id = f"{name}/{secrets.token_hex(8)}"
        """The name of this client at the server."""
        self._asking = partial(GetWeights, run=run_id, agent=agent, contract=contract)
        self._pause_seconds = pause_seconds
        # The queue holds at most two answers: one to an abandoned request, and one to the current one.
        self.socket = context.client(endpoint, self.routing_id, Limits(max_frame_bytes=max_slice_bytes, high_water_mark=2))
        self._request = RetryingRequest(self.socket, WEIGHTS, self._question, clock=clock, random=random)
        self._have: Version | None = None

    @property
    def pending(self) -> bool:
        """Whether a request is under way."""
        return self._request.is_pending

    @property
    def rest_seconds(self) -> float:
        """Seconds until there is something to do if no answer arrives: the longest sleep of a poll loop."""
        return HEARTBEAT_SECONDS if self._request.is_sent else self._request.rest_seconds

    def pause(self, seconds: float) -> None:
        """Send no request for this long, because the server's weights are unusable."""
        self._request.pause(seconds)

    def request(self, have: Version | None) -> None:
        """Request weights newer than ``have`` (None: any) without waiting; does nothing while a request is under way."""
        if not self._request.is_pending:
            self._have = have
            self._request.begin()
        self._request.advance()

    def poll(self, timeout_seconds: float = 0.0) -> WeightsFrame | None:
        """Return newer weights; None if the server has none, or no answer arrives within ``timeout_seconds``."""
        return self._request.wait_for(self._handle, timeout_seconds, longest_seconds=HEARTBEAT_SECONDS)

    def _question(self, request_id: int) -> list[Frame]:
        return encode(self._asking(id=request_id, have=self._have))

    def _handle(self, message: Message, payloads: list[memoryview]) -> WeightsFrame | None:
        match message:
            case Weights() if self._request.is_answer(message):
                slices = tuple(frame.toreadonly() for frame in payloads)
                went_back = self._have is not None and (message.lineage, message.updates) <= self._have
                if went_back or tuple(map(payload_digest, slices)) != message.digests:
                    self._request.num_malformed += 1  # the request is repeated when overdue
                    return None
                self._request.answered()
                self.held = (message.lineage, message.updates)
                return WeightsFrame(message.lineage, message.updates, slices, message.digests)
            case NotModified() if self._request.is_answer(message):
                self._request.answered()
                self.held = message.held
                self._request.pause(max(EMPTY_PAUSE_SECONDS, self._pause_seconds) if message.held is None else self._pause_seconds)
        return None


@dataclass(slots=True)
class _Slice:
    """A version to publish. Its header is created when it is first sent, so that a version that is never sent is not hashed."""

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


class WeightsPublisher(RetryingClient):
    """Keeps the newest slice of one learner shard at the parameter server. One slice is under way at a time, and the latest wins.

    Loses data: versions that are replaced by a newer one before they are sent, by design. The newest version is sent until the server
    has it, and again if the server loses it. Payloads must not change until the next version is confirmed.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        run_id: str,
        contract: str,
        agent: int = 0,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        """Start connecting; call ``poll`` at least every second."""
        self.newer_lineage: int | None = None
        """The lineage of the server's version, if ours is not greater: publish in a greater lineage."""
        self.end_is_noted = False
        """Whether the server knows that this agent's run is over."""
        self._identity: dict[str, Any] = {"run": run_id, "agent": agent, "contract": contract}
        self._clock = clock
        # One slice under way and its repetitions: no old versions are queued for a server that is down.
        self.socket = context.client(endpoint, f"publisher/{secrets.token_hex(8)}", Limits(max_frame_bytes=0, high_water_mark=2))
        self._request = RetryingRequest(self.socket, WEIGHTS, self._frames_of_newest, renumbers=False, clock=clock, random=random)
        self._end = RetryingRequest(self.socket, WEIGHTS, self._frames_of_end, clock=clock, random=random)
        self._current: _Slice | None = None
        self._under_way: tuple[int, int, int] | None = None
        self._heartbeat_at = 0.0
        self._ended_lineage: int | None = None

    @property
    def has_ended(self) -> bool:
        """Whether ``end`` was called."""
        return self._ended_lineage is not None

    @property
    def confirmed(self) -> bool:
        """Whether the server has the newest version."""
        return self._current is not None and self._current.confirmed

    @property
    def superseded(self) -> bool:
        """Whether the server holds a newer lineage, so that it will never accept the newest version."""
        return self._current is not None and self._is_stale(self._current)

    def publish(self, lineage: int, updates: int, index: int, count: int, payload: Frame) -> None:
        """Publish slice ``index`` of ``count`` of version (lineage, updates), now or when the previous slice is confirmed."""
        self._current = _Slice(lineage, updates, index, count, payload)
        self.poll()

    def end(self, lineage: int) -> None:
        """Tell the server that this agent's run is over, until ``end_is_noted``; nothing else is sent from now on."""
        self._ended_lineage = lineage
        self._end.begin()
        self.poll()

    def poll(self) -> None:
        """Handle answers and send what is due. Never blocks."""
        for message, _ in self._request.answers():
            self._handle(message)
        current = self._current
        if self.has_ended:
            self._end.advance()
        elif current is not None and not self._is_stale(current):
            if current.confirmed:
                self._beat(current)
            else:
                self._send()

    def _is_stale(self, current: _Slice) -> bool:
        """Return whether the server would refuse ``current``, so that a greater lineage is needed."""
        return self.newer_lineage is not None and current.lineage <= self.newer_lineage

    def _send(self) -> None:
        if not self._request.is_pending:
            self._request.begin()
        self._request.advance()

    def _frames_of_newest(self, _request_id: int) -> list[Frame]:
        """Return the newest slice; an older one that was under way is not sent again."""
        current = self._current
        assert current is not None
        if current.frames is None:
            header = PublishSlice(
                **self._identity,
                lineage=current.lineage,
                updates=current.updates,
                index=current.index,
                count=current.count,
                digest=payload_digest(current.payload),
            )
            current.frames = [*encode(header), current.payload]
        self._under_way = current.key
        self._heartbeat_at = self._clock() + HEARTBEAT_SECONDS
        return current.frames

    def _frames_of_end(self, request_id: int) -> list[Frame]:
        assert self._ended_lineage is not None
        return encode(AgentEnded(id=request_id, **self._identity, lineage=self._ended_lineage))

    def _beat(self, current: _Slice) -> None:
        now = self._clock()
        if now < self._heartbeat_at:
            return
        self._heartbeat_at = now + HEARTBEAT_SECONDS
        # A lost heartbeat is followed by another one, so it needs no timer.
        self.socket.send(
            encode(
                PublishHeartbeat(
                    **self._identity,
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
                if key == self._under_way:
                    self._request.answered()
                self._request.refused = None
                if current is not None and key == current.key:
                    current.confirmed = True
            case SliceWanted() if current is not None and (message.lineage, message.updates, message.index) == current.key:
                current.confirmed = False
                self._request.answered()
            case StalePublish() if current is not None:
                # The answer is about an older version: only the next slice needs to be sent.
                self._request.answered()
                if message.lineage > MAX_LINEAGE:
                    self._request.refused = (
                        f"it holds lineage {message.lineage}, which no learner opened: restart it, and let only learners publish"
                    )
                elif (message.lineage, message.updates) >= (current.lineage, current.updates):
                    self.newer_lineage = message.lineage
            case AgentEndNoted() if self._end.is_answer(message):
                self._end.answered()
                self.end_is_noted = True
