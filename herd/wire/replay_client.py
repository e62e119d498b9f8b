"""A learner's side of replay: unrolls go in exactly once, samples come back, and training waits for neither.

The service may have several replicas; an episode is at the one that its key hashes to, and a draw is spread over them by what they hold.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from herd.wire.backoff import RetryTimer
from herd.wire.codec import Frame, MalformedMessage, encode
from herd.wire.episode_pieces import EpisodeKey, inserted_layout, replica_of, segments_of
from herd.wire.layout import LINK_BITS
from herd.wire.messages import (
    MAX_SAMPLED_UNROLLS,
    MAX_UNROLLS_PER_INSERT,
    Inserted,
    InsertUnrolls,
    Message,
    Sampled,
    SampleEpisode,
    SampleUnrolls,
    StoredEpisodes,
)
from herd.wire.replay_samples import SampledEpisode, SampledUnrolls, read_parts
from herd.wire.retrying import WAIT_SECONDS, RetryingRequest
from herd.wire.sockets import Context, Dealer, Poller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from herd.wire.layout import Array, Arrays, UnrollLayout
    from herd.wire.replay_samples import EpisodePart

    Sample = SampledUnrolls | SampledEpisode

WINDOW = 2
"""Messages of unrolls that are sent and not acknowledged: one is taken in while the next one travels."""
MAX_EPISODE_BYTES = 128 << 20
"""Packed, of an episode that replay keeps: 27,000 steps of Atari at twice what any game needs."""
EMPTY_SECONDS = 0.25
"""After an empty answer: an episode must end before there is anything to draw."""


@dataclass(slots=True)
class _Request:
    """What was asked for in one call: complete when its parts are."""

    whole_episode: bool
    missing: int
    unrolls: list[EpisodePart] = field(default_factory=list)


@dataclass(slots=True)
class _Part:
    """What one replica is to draw for a request."""

    request: _Request
    count: int


@dataclass(frozen=True, slots=True)
class _Kept:
    """A message of unrolls that is not acknowledged."""

    sequence: int
    num_unrolls: int
    num_bytes: int
    arrays: dict[str, Array]
    actors: bytes


class ReplayClient:
    """Inserts and draws for one learner shard; belongs to one thread. No call blocks, but ``poll`` as long as it is told to.

    Loses data: what exceeds ``max_pending_bytes`` of unrolls that wait to be acknowledged is dropped and counted, and the episodes that
    it belongs to are discarded by replay. What is lost with a connection is sent or asked for again. Answers are bounded: one request is
    under way with each replica.
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
        """Start to connect.

        Args:
            context: the process's.
            endpoints: of all replicas, in order.
            layout: of the run's unrolls.
            run_id: of the run.
            agent: that this learner trains.
            contract: digest of the contract.
            max_pending_bytes: of unrolls that wait to be acknowledged, over all replicas.
            writer: names this client's sequence of messages for ever; None draws it.
            clock: monotonic seconds.
            random: source of jitter.

        """
        self.num_dropped_unrolls = 0
        """Beyond ``max_pending_bytes``; one that straddles games of two replicas may count twice."""
        self.pending_bytes = 0
        """Of unrolls that wait to be acknowledged."""
        self._layout = layout
        self._inserted_layout = inserted_layout(layout)
        self._max_pending_bytes = max_pending_bytes
        self._random = np.random.default_rng()
        self._clock = clock
        writer = secrets.randbits(63) if writer is None else writer
        identity = _Identity(run_id, agent, contract, writer)
        self._agent = agent
        self._replicas = [_Replica(context, endpoint, identity, clock, random) for endpoint in endpoints]
        self._requests: list[_Request] = []
        self._poller = Poller(*(replica.dealer for replica in self._replicas))

    @property
    def num_steps_stored(self) -> int | None:
        """Agent steps of complete episodes, over all replicas and as of what each said last; None until all have been heard."""
        known = [replica.stored for replica in self._replicas]
        return sum(stored.num_steps for stored in known if stored is not None) if None not in known else None

    @property
    def num_requests(self) -> int:
        """Requests that are not answered in full."""
        return len(self._requests)

    @property
    def num_unacknowledged(self) -> int:
        """Messages of unrolls that replay may not have."""
        return sum(len(replica.kept) for replica in self._replicas)

    @property
    def num_resent(self) -> int:
        """Requests and messages of unrolls that were sent again after silence."""
        return sum(replica.num_resent for replica in self._replicas)

    @property
    def num_malformed(self) -> int:
        """Answers that broke the protocol."""
        return sum(replica.requests.num_malformed for replica in self._replicas)

    @property
    def refused(self) -> str | None:
        """Why a replica refuses this client, until it answers."""
        return next((replica.requests.refused for replica in self._replicas if replica.requests.refused is not None), None)

    @property
    def sockets(self) -> list[Dealer]:
        """For their byte counts, and to poll them together with others."""
        return [replica.dealer for replica in self._replicas]

    def insert(self, arrays: Arrays, num_unrolls: int, actors: NDArray[np.int64]) -> None:
        """Hand on the first ``num_unrolls`` unrolls of ``arrays`` [U, ...], which are copied; ``actors`` [U, 2]: index and incarnation.

        Wants every field of ``inserted_layout``; a burn-in is cut off here.
        """
        for replica, unrolls in zip(self._replicas, self._by_replica(arrays, num_unrolls, actors), strict=True):
            for begin in range(0, len(unrolls), MAX_UNROLLS_PER_INSERT):
                chosen = unrolls[begin : begin + MAX_UNROLLS_PER_INSERT]
                num_bytes = len(chosen) * self._inserted_layout.bytes_per_unroll
                if self.pending_bytes + num_bytes > self._max_pending_bytes:
                    self.num_dropped_unrolls += len(chosen)
                    continue
                self.pending_bytes += num_bytes
                copied = {spec.name: _rows(arrays[spec.name], chosen, spec.shape) for spec in self._inserted_layout.fields}
                replica.keep(copied, np.ascontiguousarray(actors[chosen], np.int64).tobytes(), len(chosen), num_bytes)
        self._advance()

    def request(self, count: int, *, whole_episodes: bool) -> None:
        """Ask for ``count`` unrolls, which come as one sample, or for so many episodes, which come as one each."""
        sizes = [1] * count if whole_episodes else [count]
        for size in sizes:
            request = _Request(whole_episodes, size)
            self._requests.append(request)
            self._assign(request, size, self._replicas)
        self._advance()

    def poll(self, timeout_seconds: float) -> list[Sample]:
        """Send what is due, read what came, and return the requests that were answered; waits for one at most so long."""
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
        """Close; what has not left within ``linger_seconds`` is lost."""
        for replica in self._replicas:
            replica.dealer.close(linger_seconds)

    def _by_replica(self, arrays: Arrays, num_unrolls: int, actors: NDArray[np.int64]) -> list[list[int]]:
        """Which unrolls each replica must see: those with a step of a game that it keeps."""
        if len(self._replicas) == 1:
            return [list(range(num_unrolls))]
        burn_in = self._layout.burn_in
        chosen: list[list[int]] = [[] for _ in self._replicas]
        for unroll in range(num_unrolls):
            slot, (actor_index, incarnation) = int(arrays["environment_slot"][unroll]), actors[unroll].tolist()
            segments = segments_of(
                arrays["game_reset"][unroll, burn_in:],
                arrays["row_valid"][unroll, burn_in:],
                episode_id=int(arrays["episode_id"][unroll]),
                index_in_episode=int(arrays["index_in_episode"][unroll]),
            )
            keys = [EpisodeKey(self._agent, actor_index, incarnation >> LINK_BITS, slot, segment.episode_id) for segment in segments]
            for number in {replica_of(key, len(self._replicas)) for key in keys}:
                chosen[number].append(unroll)
        return chosen

    def _assign(self, request: _Request, count: int, replicas: Sequence[_Replica]) -> None:
        """Spread a draw over replicas by what they hold: together they draw uniformly over all of it."""
        held = np.array([replica.held(request.whole_episode) for replica in replicas], np.float64)
        weights = held / held.sum() if held.sum() > 0 else np.full(len(replicas), 1 / len(replicas))
        for replica, number in zip(replicas, self._random.multinomial(count, weights).tolist(), strict=True):
            for begin in range(0, number, MAX_SAMPLED_UNROLLS):
                replica.parts.append(_Part(request, min(number - begin, MAX_SAMPLED_UNROLLS)))

    def _advance(self) -> None:
        """Send what is due; what a silent replica was to draw, others draw instead."""
        for replica in self._replicas:
            replica.advance()
        speaking = [replica for replica in self._replicas if not replica.is_silent]
        if not speaking or len(speaking) == len(self._replicas):
            return
        for replica in self._replicas:
            if replica.is_silent and replica.parts:
                for part in replica.withdraw():
                    self._assign(part.request, part.count, speaking)

    def _read(self) -> list[Sample]:
        for replica in self._replicas:
            for message, frames in replica.requests.answers():
                replica.is_silent = False
                if isinstance(message, Inserted):
                    self.pending_bytes -= replica.on_inserted(message)
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
            parts = read_parts(message, frames, self._layout)
            replica.take(message.stored, parts)
        except MalformedMessage:
            replica.requests.num_malformed += 1


@dataclass(frozen=True, slots=True)
class _Identity:
    """What a client says of itself in every message."""

    run_id: str
    agent: int
    contract: str
    writer: int


class _Replica:
    """One replica as the client sees it: what it has not acknowledged, and what it is to draw."""

    def __init__(self, context: Context, endpoint: str, identity: _Identity, clock: Callable[[], float], random: Random | None) -> None:
        self.stored: StoredEpisodes | None = None
        """What it said last of what it holds."""
        self.kept: deque[_Kept] = deque()
        """Not acknowledged; in order."""
        self.parts: deque[_Part] = deque()
        """To draw, the first one under way."""
        self.is_silent = False
        """A request was sent again, and nothing was heard since."""
        self._identity = identity
        self._num_sent = 0  # of those kept, on their way
        self._next_sequence = 1
        self._num_inserts_resent = 0
        self._num_asked_again = 0
        self.dealer = Dealer(
            context,
            endpoint,
            routing_id=f"replay/{identity.writer:016x}",
            max_frame_bytes=MAX_EPISODE_BYTES,
            high_water_mark=WINDOW + 2,
        )
        self.requests = RetryingRequest(self.dealer, self._request_frames, clock=clock, random=random)
        self._timer = RetryTimer(clock, random or Random())

    @property
    def num_resent(self) -> int:
        """Messages sent again after silence."""
        return self.requests.num_resent + self._num_inserts_resent

    def held(self, whole_episodes: bool) -> int:
        """What it can draw from, as far as is known."""
        if self.stored is None:
            return 0
        return self.stored.num_episodes if whole_episodes else self.stored.num_unrolls

    def keep(self, arrays: dict[str, Array], actors: bytes, num_unrolls: int, num_bytes: int) -> None:
        """Take a message of unrolls to send until it is acknowledged."""
        self.kept.append(_Kept(self._next_sequence, num_unrolls, num_bytes, arrays, actors))
        self._next_sequence += 1

    def advance(self) -> None:
        """Send what is due."""
        if self._timer.due:
            self._num_inserts_resent += self._num_sent
            self._num_sent = 0
            self.is_silent = True
            self._timer.restart()
        while self._num_sent < min(len(self.kept), WINDOW) and self.dealer.send(self._insert_frames(self.kept[self._num_sent])):
            self._num_sent += 1
            self._timer.start()
        if self.parts and not self.requests.is_pending:
            self.requests.begin()
        self.requests.advance()
        if self.requests.num_resent > self._num_asked_again:
            self._num_asked_again = self.requests.num_resent
            self.is_silent = True

    def withdraw(self) -> Iterable[_Part]:
        """Cancel the pending draw; a late answer is ignored."""
        parts, self.parts = self.parts, deque()
        self.requests.answered()
        return parts

    def on_inserted(self, message: Inserted) -> int:
        """Forget what is acknowledged; returns its bytes."""
        if message.writer != self._identity.writer or message.sequence >= self._next_sequence:
            self.requests.num_malformed += 1
            return 0
        self.stored = message.stored
        num_bytes = 0
        while self.kept and self.kept[0].sequence <= message.sequence:
            num_bytes += self.kept.popleft().num_bytes
            self._num_sent = max(0, self._num_sent - 1)
        if num_bytes:
            self._timer.reset()
            if self._num_sent:
                self._timer.start()
        return num_bytes

    def take(self, stored: StoredEpisodes, parts: list[EpisodePart]) -> None:
        """Take the answer to the request under way.

        Raises:
            MalformedMessage: it is not what was asked for.

        """
        wanted = self.parts[0]
        if len(parts) > wanted.count or any((part.num_steps == part.episode_steps) < wanted.request.whole_episode for part in parts):
            raise MalformedMessage("an unexpected sample", "array")
        self.stored = stored
        self.requests.answered()
        if not parts:
            self.requests.pause(EMPTY_SECONDS)
            return
        wanted.request.unrolls += parts
        wanted.request.missing -= len(parts)
        wanted.count -= len(parts)
        if not wanted.count:
            self.parts.popleft()

    def _insert_frames(self, kept: _Kept) -> list[Frame]:
        message = InsertUnrolls(
            run_id=self._identity.run_id,
            agent=self._identity.agent,
            contract=self._identity.contract,
            writer=self._identity.writer,
            sequence=kept.sequence,
            oldest_sequence=self.kept[0].sequence,
            num_unrolls=kept.num_unrolls,
        )
        return [*encode(message, kept.arrays), kept.actors]

    def _request_frames(self, request_id: int) -> list[Frame]:
        wanted, who = self.parts[0], self._identity
        message: Message = (
            SampleEpisode(request_id=request_id, run_id=who.run_id, agent=who.agent, contract=who.contract)
            if wanted.request.whole_episode
            else SampleUnrolls(request_id=request_id, run_id=who.run_id, agent=who.agent, contract=who.contract, num_unrolls=wanted.count)
        )
        return encode(message)


def _rows(array: Array, unrolls: list[int], shape: tuple[int, ...]) -> Array:
    """Copy some unrolls, of each as many of its last rows as ``shape`` has."""
    chosen = array[unrolls] if not shape else array[unrolls, -shape[0] :]
    return np.ascontiguousarray(chosen)


def _sample(request: _Request) -> Sample:
    if request.whole_episode:
        return SampledEpisode(request.unrolls[0])
    return SampledUnrolls([part.unroll_at(part.first_step) for part in request.unrolls])
