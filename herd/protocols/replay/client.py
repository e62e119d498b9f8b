"""A learner's side of replay: it inserts unrolls exactly once and draws samples, and training waits for neither.

The service may have several replicas. A hash of its key determines the replica of an episode, and draws are distributed over replicas in
proportion to what they hold.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from herd.protocols.replay.messages import (
    MAX_INSERTED_RECORDS,
    MAX_SAMPLED_UNROLLS,
    REPLAY,
    Inserted,
    InsertPieces,
    Sampled,
    SampleEpisode,
    SamplePart,
    SampleUnrolls,
    StoredEpisodes,
)
from herd.protocols.replay.pieces import PieceLayout
from herd.protocols.replay.records import record_of, replica_of
from herd.protocols.replay.samples import SampledEpisode, SampledUnrolls, max_answer_bytes, read_parts
from herd.rpc.codec import MalformedMessage, encode
from herd.rpc.request import WAIT_SECONDS, RetryingRequest, RetryTimer
from herd.transport import Client, Limits
from herd.transport.context import Context, Poller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from herd.contract.unroll import Arrays, UnrollLayout
    from herd.protocols.replay.samples import EpisodePart
    from herd.transport import Frame

    Sample = SampledUnrolls | SampledEpisode

WINDOW = 2
"""Maximum number of messages of pieces that are sent and not acknowledged: the service processes one while the next is on its way."""
INSERT_BYTES = 4 << 20
"""Size of a message of pieces. A single record may be larger."""
EMPTY_SECONDS = 0.25
"""Pause after an empty answer: nothing can be drawn until an episode ends."""


@dataclass(slots=True)
class _Request:
    """A draw; it is complete when its parts are."""

    whole_episode: bool
    missing: int
    after: EpisodePart | None = None
    """The part of an episode that the requested one follows."""
    unrolls: list[EpisodePart] = field(default_factory=list)

    def accepts(self, part: EpisodePart) -> bool:
        """Return whether the part is one of those requested."""
        if self.after is not None:
            return self.after.is_followed_by(part)
        return not (self.whole_episode and part.first_step)


@dataclass(slots=True)
class _Part:
    """The part of a request that one replica draws."""

    request: _Request
    count: int


@dataclass(frozen=True, slots=True)
class _Kept:
    """A message of pieces that is not acknowledged."""

    sequence: int
    num_records: int
    payload: bytes


def max_insert_bytes(layout: PieceLayout) -> int:
    """Return the size of the largest message of pieces."""
    rows = layout.unroll.new_steps + 1
    return INSERT_BYTES + layout.max_packed_bytes(rows, rows)


class ReplayClient:
    """Inserts and draws unrolls for one learner shard. Used by one thread. Only ``poll`` blocks, as long as the caller allows.

    Loses data: pieces beyond a replica's part of ``max_pending_bytes`` are dropped, and replay discards their episodes.
    Messages that are lost with a connection are sent again. Each replica has one request at a time, which bounds the size of answers.
    """

    def __init__(
        self,
        context: Context,
        endpoints: Sequence[str],
        *,
        layout: UnrollLayout,
        run_id: str,
        agent: int,
        contract: str,
        max_pending_bytes: int,
        writer: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        """Start connecting.

        Args:
            context: the process's.
            endpoints: addresses of all replicas, in order.
            layout: layout of the run's unrolls.
            run_id: name of the run.
            agent: the agent that this learner trains.
            contract: digest of the contract.
            max_pending_bytes: maximum size of unacknowledged pieces, in equal parts for the replicas, so that a dead one does not fill the
                parts of others. A replica may always have one message.
            writer: permanent name of this client's sequence of messages; None draws a random one.
            clock: monotonic seconds.
            random: source of jitter and of the replicas to draw from.

        """
        self.num_dropped_unrolls = 0
        """Unrolls of which a piece was dropped because of ``max_pending_bytes``, or whose numbers contradict each other."""
        self._pieces = PieceLayout(layout)
        self._random = np.random.default_rng(None if random is None else random.getrandbits(64))
        self._clock = clock
        name = f"{secrets.randbits(63) if writer is None else writer:016x}"
        identity = {"run": run_id, "agent": agent, "contract": contract}
        self._agent = agent
        limits = Limits(max_frame_bytes=max_answer_bytes(layout), high_water_mark=WINDOW + 2)
        self._replicas = [
            _Replica(
                context.client(endpoint, f"replay/{name}", limits),
                name,
                identity,
                max_pending_bytes=max_pending_bytes // len(endpoints),
                clock=clock,
                random=random,
            )
            for endpoint in endpoints
        ]
        self._requests: list[_Request] = []
        self._poller = Poller(*(replica.dealer for replica in self._replicas))

    @property
    def num_steps_stored(self) -> int | None:
        """Agent steps of complete episodes in all replicas, by their last answers; None until one has answered."""
        known = [replica.stored.num_steps for replica in self._replicas if replica.stored is not None]
        return sum(known) if known else None

    @property
    def num_discarded_episodes(self) -> int:
        """Episodes that replay could not keep since it started, by the last answers."""
        return sum(replica.stored.num_discarded for replica in self._replicas if replica.stored is not None)

    @property
    def pending_bytes(self) -> int:
        """Size of unacknowledged pieces."""
        return sum(replica.pending_bytes for replica in self._replicas)

    @property
    def num_requests(self) -> int:
        """Number of requests that are not completely answered."""
        return len(self._requests)

    @property
    def num_unacknowledged(self) -> int:
        """Number of messages with pieces that replay has not acknowledged."""
        return sum(len(replica.kept) for replica in self._replicas)

    @property
    def num_malformed(self) -> int:
        """Number of answers that violate the protocol."""
        return sum(replica.requests.num_malformed for replica in self._replicas)

    @property
    def refused(self) -> str | None:
        """Reason for which a replica refuses this client; None once it answers."""
        return next((replica.requests.refused for replica in self._replicas if replica.requests.refused is not None), None)

    def insert(self, arrays: Arrays, num_unrolls: int, actors: NDArray[np.int64]) -> None:
        """Cut the first ``num_unrolls`` unrolls of ``arrays`` [U, ...] into pieces of episodes, and send each to the episode's replica.

        Args:
            arrays: every field that replay stores, by name.
            num_unrolls: number of unrolls.
            actors: [U, 2], index and incarnation of the actor that played each unroll.
        """
        for unroll, (actor_index, incarnation) in enumerate(actors[:num_unrolls].tolist()):
            is_dropped = False
            try:
                segments = self._pieces.cut(arrays, unroll, agent=self._agent, actor_index=actor_index, incarnation=incarnation)
            except MalformedMessage:
                segments, is_dropped = [], True
            for segment in segments:
                replica = self._replicas[replica_of(segment.key, len(self._replicas))]
                if replica.is_full:
                    is_dropped = True
                else:
                    replica.keep(record_of(self._pieces.pack(arrays, segment)))
            self.num_dropped_unrolls += is_dropped
        for replica in self._replicas:
            replica.end_message()
        self._advance()

    def request(self, count: int, *, whole_episodes: bool) -> None:
        """Request ``count`` unrolls, which arrive as one sample, or the first parts of ``count`` episodes, one sample each."""
        sizes = [1] * count if whole_episodes else [count]
        for size in sizes:
            request = _Request(whole_episodes, size)
            self._requests.append(request)
            self._assign(request, size, self._replicas)
        self._advance()

    def request_next(self, part: EpisodePart) -> None:
        """Request the part of an episode that follows ``part``."""
        request = _Request(whole_episode=True, missing=1, after=part)
        self._requests.append(request)
        self._replicas[replica_of(part.key, len(self._replicas))].parts.append(_Part(request, 1))
        self._advance()

    def poll(self, timeout_seconds: float) -> list[Sample]:
        """Send what is due, read answers, and return complete samples; wait at most ``timeout_seconds`` for one."""
        deadline = self._clock() + timeout_seconds
        while True:
            self._advance()
            samples = self._read()
            left = deadline - self._clock()
            if samples or left <= 0:
                self._advance()
                return samples
            self._poller.poll(min(left, WAIT_SECONDS))

    def close(self, linger_seconds: float = 0.0) -> None:
        """Close; messages not sent within ``linger_seconds`` are lost."""
        for replica in self._replicas:
            replica.dealer.close(linger_seconds)

    def _assign(self, request: _Request, count: int, replicas: Sequence[_Replica]) -> None:
        """Distribute a draw over replicas in proportion to what they hold, so that it is uniform over everything stored."""
        held = np.array([replica.held(request.whole_episode) for replica in replicas], np.float64)
        weights = held / held.sum() if held.sum() > 0 else np.full(len(replicas), 1 / len(replicas))
        for replica, number in zip(replicas, self._random.multinomial(count, weights).tolist(), strict=True):
            for begin in range(0, number, MAX_SAMPLED_UNROLLS):
                replica.parts.append(_Part(request, min(number - begin, MAX_SAMPLED_UNROLLS)))

    def _advance(self) -> None:
        """Send what is due. Replicas that can be drawn from take over the draws of the others, but they do not have their episodes."""
        for replica in self._replicas:
            replica.advance()
        able = [replica for replica in self._replicas if replica.can_be_drawn_from]
        if not able:
            return
        for replica in self._replicas:
            if replica.parts and replica not in able:
                for part in replica.withdraw():
                    if part.request.after is None:
                        self._assign(part.request, part.count, able)
                    else:
                        part.request.missing = 0

    def _read(self) -> list[Sample]:
        for replica in self._replicas:
            for message, frames in replica.requests.answers():
                replica.is_silent = False
                if isinstance(message, Inserted):
                    replica.on_inserted(message)
                elif isinstance(message, Sampled):
                    self._on_sampled(replica, message, frames)
                else:
                    replica.requests.num_malformed += 1
        answered = [request for request in self._requests if not request.missing]
        self._requests = [request for request in self._requests if request.missing]
        return [_sample(request) for request in answered]

    def _on_sampled(self, replica: _Replica, message: Sampled, frames: Sequence[Frame]) -> None:
        if not replica.requests.is_answer(message):
            return
        try:
            parts = read_parts(message, frames, self._pieces)
            replica.take(message.stored, parts)
        except MalformedMessage:
            replica.requests.num_malformed += 1


class _Replica:
    """The client's state for one replica: its unacknowledged messages and pending draws."""

    def __init__(
        self,
        dealer: Client,
        writer: str,
        identity: dict[str, Any],
        *,
        max_pending_bytes: int,
        clock: Callable[[], float],
        random: Random | None,
    ) -> None:
        self.stored: StoredEpisodes | None = None
        """What it holds, by its last answer."""
        self.kept: deque[_Kept] = deque()
        """Unacknowledged messages, in order."""
        self.pending_bytes = 0
        """Size of unacknowledged pieces."""
        self.parts: deque[_Part] = deque()
        """Pending draws; the first one is under way."""
        self.is_silent = False
        """Whether a request was repeated and nothing has been received since."""
        self.dealer = dealer
        self.requests = RetryingRequest(dealer, REPLAY, self._request_frames, clock=clock, random=random)
        self._writer = writer
        self._identity = identity
        self._max_pending_bytes = max_pending_bytes
        self._records: list[bytes] = []
        """Those of the next message."""
        self._record_bytes = 0
        self._num_sent = 0  # number of kept messages that have been sent
        self._next_sequence = 1
        self._timer = RetryTimer(clock, random or Random())

    @property
    def is_full(self) -> bool:
        """Whether there is no room for further pieces."""
        return bool(self.kept) and self.pending_bytes >= self._max_pending_bytes

    @property
    def can_be_drawn_from(self) -> bool:
        """Whether it is connected, answers, and holds episodes, as far as is known. A restarted replica may be empty."""
        return self.dealer.connected and not self.is_silent and self.held(whole_episodes=True) > 0

    def held(self, whole_episodes: bool) -> int:
        """Return the number of episodes or unrolls that it holds, as far as is known."""
        if self.stored is None:
            return 0
        return self.stored.num_episodes if whole_episodes else self.stored.num_unrolls

    def keep(self, record: Iterable[Frame]) -> None:
        """Add a record to the next message."""
        joined = b"".join(record)
        if self._records and (len(self._records) == MAX_INSERTED_RECORDS or self._record_bytes + len(joined) > INSERT_BYTES):
            self.end_message()
        self._records.append(joined)
        self._record_bytes += len(joined)
        self.pending_bytes += len(joined)

    def end_message(self) -> None:
        """Make a message of the records since the last one; it is kept until it is acknowledged."""
        if self._records:
            self.kept.append(_Kept(self._next_sequence, len(self._records), b"".join(self._records)))
            self._next_sequence += 1
            self._records, self._record_bytes = [], 0

    def advance(self) -> None:
        """Send what is due."""
        if self._timer.due:
            self._num_sent = 0
            self.is_silent = True
            self._timer.restart()
        while self._num_sent < min(len(self.kept), WINDOW) and self.dealer.send(self._insert_frames(self.kept[self._num_sent])):
            self._num_sent += 1
            self._timer.start()
        if self.parts and not self.requests.is_pending:
            self.requests.begin()
        self.is_silent |= self.requests.is_overdue
        self.requests.advance()

    def withdraw(self) -> Iterable[_Part]:
        """Cancel the pending draw; a late answer is ignored."""
        parts, self.parts = self.parts, deque()
        self.requests.answered()
        return parts

    def on_inserted(self, message: Inserted) -> None:
        """Remove acknowledged messages."""
        if message.sequence >= self._next_sequence:
            self.requests.num_malformed += 1
            return
        self.stored = message.stored
        if not self.kept or self.kept[0].sequence > message.sequence:
            return
        while self.kept and self.kept[0].sequence <= message.sequence:
            self.pending_bytes -= len(self.kept.popleft().payload)
            self._num_sent = max(0, self._num_sent - 1)
        self._timer.reset()
        if self._num_sent:
            self._timer.start()

    def take(self, stored: StoredEpisodes, parts: list[EpisodePart]) -> None:
        """Process the answer to the request under way.

        Raises:
            MalformedMessage: it does not match the request.

        """
        wanted = self.parts[0]
        if len(parts) > wanted.count or not all(map(wanted.request.accepts, parts)):
            raise MalformedMessage("an unexpected sample", "array")
        self.stored = stored
        self.requests.answered()
        if not parts and wanted.request.after is None:
            self.requests.pause(EMPTY_SECONDS)
            return
        wanted.request.unrolls += parts
        num_answered = max(len(parts), 1)  # without a part, the episode is no longer there
        wanted.request.missing -= num_answered
        wanted.count -= num_answered
        if not wanted.count:
            self.parts.popleft()

    def _insert_frames(self, kept: _Kept) -> list[Frame]:
        oldest, who = self.kept[0].sequence, self._identity
        message = InsertPieces(id=kept.sequence, client=self._writer, oldest=oldest, num_records=kept.num_records, **who)
        return [*encode(message), kept.payload]

    def _request_frames(self, request_id: int) -> list[Frame]:
        wanted, after = self.parts[0], self.parts[0].request.after
        who = self._identity
        if after is not None:
            return encode(SamplePart(id=request_id, episode=after.key, first_step=after.stop_step, **who))
        if wanted.request.whole_episode:
            return encode(SampleEpisode(id=request_id, **who))
        return encode(SampleUnrolls(id=request_id, num_unrolls=wanted.count, **who))


def _sample(request: _Request) -> Sample:
    if request.whole_episode:
        return SampledEpisode(request.unrolls[0] if request.unrolls else None, request.after)
    return SampledUnrolls([part.unroll_at(part.first_step) for part in request.unrolls])
