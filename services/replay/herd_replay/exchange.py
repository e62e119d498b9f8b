"""Computes replay's answers, without sockets and clock: a message goes in, and the answer and the numbers to count come out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from herd.contract.unroll import LINK_BITS
from herd.protocols.replay.messages import (
    MAX_UNROLLS_PER_INSERT,
    Inserted,
    InsertUnrolls,
    Sampled,
    SampleEpisode,
    SamplePart,
    SampleUnrolls,
    StoredEpisodes,
)
from herd.protocols.replay.pieces import EpisodeKey, PieceLayout, check_episode_fields, inserted_layout, replica_of, segments_of
from herd.protocols.replay.samples import MAX_ANSWER_BYTES, MAX_EPISODE_STEPS, pieces_with_rows, rows_of_unroll
from herd.protocols.unrolls.arrays import read_arrays
from herd.rpc.codec import MalformedMessage
from herd.rpc.serving import AtMostOnce, Received, Reply
from herd_replay.assembly import Piece

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from herd.contract.unroll import Array, UnrollLayout
    from herd.protocols.replay.pieces import Segment
    from herd.protocols.replay.samples import Table
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
    is_episode: bool = False
    """Whether an episode is sampled in parts."""


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
        layout: UnrollLayout,
        replica: Replica,
        assembler: Assembler,
        store: EpisodeStore,
        writers: AtMostOnce[None],
        random: np.random.Generator,
        part_bytes: int,
    ) -> None:
        """``layout``: that of sampled unrolls. ``part_bytes``: packed size of a part of an episode."""
        self._layout = layout
        self._replica = replica
        self._assembler = assembler
        self._store = store
        self._writers = writers
        self._random = random
        self._part_bytes = part_bytes
        self._inserted_layout = inserted_layout(layout)
        self._pieces = PieceLayout(layout)
        self._block = self._inserted_layout.allocate(MAX_UNROLLS_PER_INSERT)

    def answer(self, received: Received) -> Answer:
        """Answer one request.

        Raises:
            MalformedMessage: the message is not a valid replay request; nothing has changed.

        """
        message = received.message
        if isinstance(message, InsertUnrolls):
            return self._insert(message, received.payloads)
        if isinstance(message, SampleUnrolls):
            return self._sample_unrolls(message)
        assert isinstance(message, SampleEpisode | SamplePart)
        return self._sample_episode(message)

    def _insert(self, message: InsertUnrolls, payload: Sequence[Frame]) -> Answer:
        answer = Answer(outcome="inserted")
        writer = message.client or ""
        novelty = self._writers.judge(writer, message.id, message.oldest)
        if novelty == "new":
            self._writers.answered(writer, message.id)
            try:
                self._take(message, payload)
            except MalformedMessage as error:
                answer.outcome, answer.malformed = "malformed", error
        else:
            answer.outcome = "early" if novelty == "early" else "repeated"
            # Messages before the oldest, which the writer can no longer repeat, were stored before this service lost data.
            self._writers.answered(writer, max(self._writers.last(writer), message.oldest - 1))
        answer.message = Inserted(id=message.id, sequence=self._writers.last(writer), stored=self._stored())
        return answer

    def _take(self, message: InsertUnrolls, payload: Sequence[Frame]) -> None:
        """Store the contents of a message. If it is invalid, raises ``MalformedMessage`` and stores nothing."""
        count = message.num_unrolls
        arrays = {name: array[:count] for name, array in self._block.items()}
        read_arrays(payload[:-1], count, self._inserted_layout, arrays)
        check_episode_fields(arrays)
        actors = _actors(payload[-1], count)
        if int(arrays["index_in_episode"].max()) > MAX_EPISODE_STEPS - self._layout.new_steps:
            raise MalformedMessage("a game with more steps than replay accepts", "array")
        for unroll in range(count):
            self._take_unroll(message.agent, arrays, unroll, actors[unroll].tolist())
        self._store.trim()

    def _take_unroll(self, agent: int, arrays: dict[str, Array], unroll: int, actor: list[int]) -> None:
        actor_index, incarnation = actor
        slot, task_id = int(arrays["environment_slot"][unroll]), int(arrays["task_id"][unroll])
        for segment in segments_of(
            arrays["game_reset"][unroll],
            arrays["row_valid"][unroll],
            episode_id=int(arrays["episode_id"][unroll]),
            index_in_episode=int(arrays["index_in_episode"][unroll]),
        ):
            key = EpisodeKey(agent, actor_index, incarnation >> LINK_BITS, slot, segment.episode_id)
            if replica_of(key, self._replica.count) != self._replica.index or self._assembler.drops(key, segment.first_step):
                continue
            piece = self._piece(arrays, unroll, segment) if segment.num_steps else None
            episode = self._assembler.insert(key, task_id, piece, segment.stop_step if segment.is_end else None)
            if episode is not None:
                self._store.append(episode)

    def _piece(self, arrays: dict[str, Array], unroll: int, segment: Segment) -> Piece:
        begin, end = arrays["policy_version"][unroll].tolist()
        return Piece(segment.first_step, segment.num_steps, segment.num_rows, (*begin, *end), self._pieces.pack(arrays, unroll, segment))

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
        answer = Answer(is_episode=True)
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


def _actors(frame: Frame, count: int) -> NDArray[np.int64]:
    """Return the actor of each unroll as (actor_index, incarnation), [U, 2]."""
    if len(frame) != count * 16:
        raise MalformedMessage(f"actors of {len(frame)} bytes, expected {count * 16}", "size")
    actors = np.frombuffer(frame, np.int64).reshape(count, 2)
    if actors.min() < 0:
        raise MalformedMessage("an actor with a negative number", "array")
    return actors
