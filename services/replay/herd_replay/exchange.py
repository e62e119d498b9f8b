"""Computes replay's answers, without sockets and clock: a message goes in, and the answer and the numbers to count come out."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from herd.protocols.replay.messages import (
    Inserted,
    InsertPieces,
    Sampled,
    SampleEpisode,
    SamplePart,
    SampleUnrolls,
    StoredEpisodes,
)
from herd.protocols.replay.records import EpisodeKey, read_records, replica_of
from herd.protocols.replay.samples import MAX_ANSWER_BYTES, pieces_with_rows, rows_of_unroll
from herd.rpc.codec import MalformedMessage
from herd.rpc.serving import AtMostOnce, Received, Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from herd.protocols.replay.pieces import PieceLayout
    from herd.protocols.replay.records import Table
    from herd.transport import Frame
    from herd_replay.assembly import Assembler
    from herd_replay.store import EpisodeStore, Stored

Outcome = Literal["inserted", "repeated", "early", "sampled", "empty", "malformed"]


@dataclass(slots=True)
class Answer(Reply):
    """The reply to one request, and what it counted."""

    outcome: Outcome = "sampled"
    ages: list[int] = field(default_factory=list)
    """For each sampled unroll or episode: number of agent steps inserted since its episode."""
    sampled_steps: int = 0
    """Agent steps of the sampled parts."""


class _Part(NamedTuple):
    """Some successive unrolls of an episode."""

    head: np.void
    """Its row of the table of parts."""
    pieces: Table
    packed: memoryview


@dataclass(frozen=True, slots=True)
class Replica:
    """The index of this replica and the number of replicas."""

    index: int
    count: int

    def share_of(self, total: int) -> int:
        """Return this replica's part of ``total``. The parts of all replicas add up to it and differ by at most one."""
        return total // self.count + (self.index < total % self.count)


class ReplayHandler:
    """The handler of replay's requests."""

    def __init__(
        self,
        *,
        layout: PieceLayout,
        replica: Replica,
        assembler: Assembler,
        store: EpisodeStore,
        writers: AtMostOnce[None],
        random: np.random.Generator,
        part_bytes: int,
    ) -> None:
        """``part_bytes``: packed size of a part of an episode."""
        self._pieces, self._layout = layout, layout.unroll
        self._replica = replica
        self._assembler = assembler
        self._store = store
        self._writers = writers
        self._random = random
        self._part_bytes = part_bytes

    def answer(self, received: Received) -> Answer:
        """Answer one request.

        Raises:
            MalformedMessage: the message is not a valid replay request; nothing has changed.

        """
        message = received.message
        if isinstance(message, InsertPieces):
            return self._insert(message, received.payloads)
        if isinstance(message, SampleUnrolls):
            return self._sample_unrolls(message)
        assert isinstance(message, SampleEpisode | SamplePart)
        return self._sample_episode(message)

    def _insert(self, message: InsertPieces, payload: Sequence[Frame]) -> Answer:
        answer = Answer(outcome="inserted")
        writer = message.client or ""
        novelty = self._writers.judge(writer, message.id, message.oldest)
        if novelty == "new":
            try:
                self._take(message, payload)
            except MalformedMessage as error:
                answer.outcome, answer.malformed = "malformed", error
            self._writers.answered(writer, message.id)  # after any other error the writer sends it again
        else:
            answer.outcome = "early" if novelty == "early" else "repeated"
            # Messages before the oldest, which the writer can no longer repeat, were stored before this service lost data.
            self._writers.answered(writer, max(self._writers.last(writer), message.oldest - 1))
        answer.message = Inserted(id=message.id, sequence=self._writers.last(writer), stored=self._stored())
        return answer

    def _take(self, message: InsertPieces, payloads: Sequence[Frame]) -> None:
        """Store the contents of a message. If it is invalid, raises ``MalformedMessage`` and stores nothing."""
        if len(payloads) != 1:
            raise MalformedMessage(f"pieces in {len(payloads)} payload frames", "array")
        # Copies of the packed pieces, because a view would keep the whole message in memory.
        parts = []
        for _, part in read_records(io.BytesIO(payloads[0]).read, len(payloads[0]), self._pieces):
            if part.key.agent != message.agent:
                raise MalformedMessage(f"a piece of agent {part.key.agent} in a message of agent {message.agent}", "array")
            if replica_of(part.key, self._replica.count) != self._replica.index:
                raise MalformedMessage("a piece of another replica: start all processes with the same replay_service.replicas", "array")
            parts.append(part)
            if len(parts) > message.num_records:
                break
        if len(parts) != message.num_records:
            raise MalformedMessage(f"another number of records than {message.num_records}", "array")
        for part in parts:
            if (episode := self._assembler.insert(part)) is not None:
                self._store.append(episode)
        self._store.trim()

    def _sample_unrolls(self, message: SampleUnrolls) -> Answer:
        answer = Answer()
        parts: list[_Part] = []
        num_bytes = 0
        while self._store.num_episodes and len(parts) < message.num_unrolls and num_bytes < MAX_ANSWER_BYTES:
            stored, first_step = self._store.draw_unroll(self._random)
            part = self._part(stored, first_step, 0)
            parts.append(part)
            num_bytes += len(part.packed)
            answer.ages.append(self._store.inserted_steps - stored.inserted_steps)
        return self._answer(message.id, answer, parts)

    def _sample_episode(self, message: SampleEpisode | SamplePart) -> Answer:
        answer = Answer()
        first_step = 0
        if isinstance(message, SamplePart):
            stored, first_step = self._store.find(EpisodeKey(*message.episode)), message.first_step
        else:
            stored = self._store.draw_episode(self._random) if self._store.num_episodes else None
        if stored is None or first_step >= stored.num_steps:
            return self._answer(message.id, answer, [])
        if not first_step:
            answer.ages.append(self._store.inserted_steps - stored.inserted_steps)
        return self._answer(message.id, answer, [self._part(stored, first_step, self._part_bytes)])

    def _part(self, stored: Stored, first_step: int, part_bytes: int) -> _Part:
        """Return the unrolls from ``first_step`` on that take at most ``part_bytes``, but at least one."""
        record, length = self._store.record(stored), self._layout.new_steps
        first_steps, ends = record.pieces["first_step"], np.cumsum(record.pieces["num_bytes"])
        first_row, last_row = rows_of_unroll(self._layout, first_step)
        begin, end = pieces_with_rows(first_steps, first_row, last_row)
        start = int(ends[begin - 1]) if begin else 0
        stop_step = min(first_step + length, stored.num_steps)
        num_fitting = int(np.searchsorted(ends, start + part_bytes, "right"))
        if num_fitting >= end:
            last = record.pieces[num_fitting - 1]
            stop_step = int(last["first_step"] + last["num_steps"])
            if stop_step < stored.num_steps:
                stop_step -= stop_step % length
            begin, end = pieces_with_rows(first_steps, first_row, stop_step)
        part = record.part[0].copy()
        part["first_step"], part["num_steps"], part["num_pieces"] = first_step, stop_step - first_step, end - begin
        return _Part(part, record.pieces[begin:end], record.packed[start : int(ends[end - 1])])

    def _answer(self, request_id: int, answer: Answer, parts: list[_Part]) -> Answer:
        if not parts:
            answer.outcome = "empty"
        answer.sampled_steps = sum(int(part.head["num_steps"]) for part in parts)
        # A single part is a view of its record: while it waits for its reader it takes no memory, unless its episode is evicted.
        packed = parts[0].packed if len(parts) == 1 else b"".join(part.packed for part in parts)
        num_pieces = sum(len(part.pieces) for part in parts)
        answer.message = Sampled(id=request_id, num_parts=len(parts), num_pieces=num_pieces, stored=self._stored())
        answer.payloads = [
            b"".join(part.head.tobytes() for part in parts),
            b"".join(part.pieces.tobytes() for part in parts),
            packed,
        ]
        return answer

    def _stored(self) -> StoredEpisodes:
        store = self._store
        return StoredEpisodes(
            num_episodes=store.num_episodes,
            num_unrolls=store.num_unrolls,
            num_steps=store.num_steps,
            num_discarded=self._assembler.num_discarded.total(),
        )
