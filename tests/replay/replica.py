"""A replica of the replay service without its socket, and messages for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from herd_replay.assembly import Assembler
from herd_replay.exchange import Answer, ReplayHandler, Replica
from herd_replay.segments import SegmentLog
from herd_replay.snapshot import SnapshotFolder, capture
from herd_replay.store import EpisodeStore

from herd.contract.spaces import discrete
from herd.contract.unroll import Array, UnrollLayout
from herd.protocols.replay.messages import REPLAY, InsertPieces, Sampled, SampleEpisode, SamplePart, SampleUnrolls
from herd.protocols.replay.pieces import PieceLayout
from herd.protocols.replay.records import Episode, EpisodeKey, record_of
from herd.protocols.replay.samples import EpisodePart, read_parts
from herd.rpc.envelope import Message
from herd.rpc.serving import AtMostOnce, ServedRun
from herd.transport import Frame
from tests.asking import ask

LAYOUT = UnrollLayout(unroll_length=4, frame_stack=3, frame_shape=(3, 2, 1), actions=discrete(3), num_parameters=3, num_tasks=5)
CONTRACT = "c0" * 32
CAPACITY = 60
OPEN_BYTES = 1 << 24
PIECES = PieceLayout(LAYOUT)
ONLY = Replica(0, 1)


class Process:
    """Everything in a replica's process except its socket."""

    def __init__(
        self,
        directory: Path,
        *,
        capacity: int = CAPACITY,
        layout: UnrollLayout = LAYOUT,
        part_bytes: int = 1 << 20,
        memory_bytes: int = 1 << 40,
        replica: Replica = ONLY,
    ) -> None:
        self.layout = PieceLayout(layout)
        self.assembler = Assembler(OPEN_BYTES)
        self.store = EpisodeStore(
            capacity_steps=capacity,
            max_bytes=lambda: memory_bytes - self.assembler.total_bytes,
            unroll_length=layout.new_steps,
            log=SegmentLog(segment_bytes=4096),
        )
        self.writers: AtMostOnce[None] = AtMostOnce(100, in_order=True)
        self.folder = SnapshotFolder(directory, run="run", contract=CONTRACT, replica=replica, layout=self.layout)
        self.restored = self.folder.load(self.store, self.assembler, self.writers)
        self.handler = ReplayHandler(
            layout=self.layout,
            replica=replica,
            assembler=self.assembler,
            store=self.store,
            writers=self.writers,
            random=np.random.default_rng(replica.index),
            part_bytes=part_bytes,
        )

    def save(self, *, is_last: bool) -> None:
        self.folder.save(capture(self.store, self.assembler, self.writers, is_last=is_last))

    def insert(self, unrolls: list[dict[str, Array]], sequence: int, **options: Any) -> Answer:
        """Insert unrolls as a learner does; ``options`` are those of `pieces_of` and `insertion`."""
        options = {"writer": 7, "oldest": 1, **options}
        about = {name: options.pop(name) for name in ("writer", "oldest")}
        return self.ask(*insertion(pieces_of(unrolls, layout=self.layout, **options), sequence, **about))

    def ask(self, message: Message | Sequence[Frame], *payload: Frame) -> Answer:
        """The answer, as in the process."""
        run = ServedRun("learner.replay", "run", CONTRACT, range(2))
        return ask(REPLAY, run, self.handler.answer, message, *payload, refused=lambda reply: Answer(reply.message, label=reply.label))

    def sample_unrolls(self, count: int) -> list[EpisodePart]:
        request = SampleUnrolls(id=1, run="run", agent=0, contract=CONTRACT, num_unrolls=count)
        return self.read(self.ask(request))

    def sample_episode(self) -> list[EpisodePart]:
        """All parts of an episode."""
        parts = self.read(self.ask(SampleEpisode(id=1, run="run", agent=0, contract=CONTRACT)))
        while parts and parts[-1].stop_step < parts[-1].episode_steps:
            parts += self.sample_part(parts[-1].key, parts[-1].stop_step)
        return parts

    def sample_part(self, key: EpisodeKey, first_step: int) -> list[EpisodePart]:
        message = SamplePart(id=1, run="run", agent=0, contract=CONTRACT, episode=key, first_step=first_step)
        return self.read(self.ask(message))

    def read(self, answer: Answer) -> list[EpisodePart]:
        assert isinstance(answer.message, Sampled)
        return read_parts(answer.message, answer.payloads, self.layout)

    def held(self) -> list[EpisodeKey]:
        return [self.store.record(stored).key for stored in self.store.episodes()]


def pieces_of(
    unrolls: list[dict[str, Array]], *, agent: int = 0, incarnation: int = 1 << 20, layout: PieceLayout = PIECES
) -> list[Episode]:
    """What the unrolls of one actor add to episodes, in order."""
    return [
        layout.pack(unroll, segment)
        for unroll in unrolls
        for segment in layout.cut(unroll, 0, agent=agent, actor_index=4, incarnation=incarnation)
    ]


def insertion(
    pieces: list[Episode], sequence: int, *, oldest: int = 1, writer: int = 7, agent: int | None = None
) -> tuple[InsertPieces, bytes]:
    """A message and its payload."""
    message = InsertPieces(
        run="run",
        agent=pieces[0].key.agent if agent is None else agent,
        contract=CONTRACT,
        client=str(writer),
        id=sequence,
        oldest=oldest,
        num_records=len(pieces),
    )
    return message, b"".join(part for piece in pieces for part in record_of(piece))
