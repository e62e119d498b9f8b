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

from herd.contract.actions import discrete
from herd.contract.unroll import Array, UnrollLayout
from herd.protocols.replay.messages import REPLAY, InsertUnrolls, Sampled, SampleEpisode, SamplePart, SampleUnrolls
from herd.protocols.replay.pieces import EpisodeKey, inserted_layout
from herd.protocols.replay.samples import EpisodePart, read_parts
from herd.protocols.unrolls.arrays import pack_arrays
from herd.rpc.codec import encode
from herd.rpc.envelope import Message
from herd.rpc.serving import AtMostOnce, ServedRun
from herd.transport import Frame
from tests.asking import ask

LAYOUT = UnrollLayout(unroll_length=4, frame_stack=3, frame_shape=(3, 2, 1), actions=discrete(3), num_parameters=3, num_tasks=5)
CONTRACT = "c0" * 32
CAPACITY = 60
OPEN_BYTES = 1 << 24
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
        self.layout = layout
        self.assembler = Assembler(OPEN_BYTES)
        self.store = EpisodeStore(
            capacity_steps=capacity,
            max_bytes=lambda: memory_bytes - self.assembler.total_bytes,
            unroll_length=layout.new_steps,
            log=SegmentLog(segment_bytes=4096),
        )
        self.writers: AtMostOnce[None] = AtMostOnce(100, in_order=True)
        self.folder = SnapshotFolder(directory, run="run", contract=CONTRACT, replica=replica)
        self.restored = self.folder.load(self.store, self.assembler, self.writers)
        self.handler = ReplayHandler(
            layout=layout,
            replica=replica,
            assembler=self.assembler,
            store=self.store,
            writers=self.writers,
            random=np.random.default_rng(replica.index),
            part_bytes=part_bytes,
        )

    def save(self, *, is_last: bool) -> None:
        self.folder.save(capture(self.store, self.assembler, self.writers, is_last=is_last))

    def insert(self, unrolls: list[dict[str, Array]], sequence: int, *, oldest: int = 1, writer: int = 7, **changes: Any) -> Answer:
        message, payload = insertion(unrolls, sequence, oldest=oldest, writer=writer, **changes)
        return self.ask(message, payload)

    def ask(self, message: Message | Sequence[Frame], payload: Sequence[Frame] = ()) -> Answer:
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


def insertion(
    unrolls: list[dict[str, Array]], sequence: int, *, oldest: int = 1, writer: int = 7, agent: int = 0, **changes: Any
) -> tuple[InsertUnrolls, list[Any]]:
    """A message and its payload, in the received form."""
    arrays = {
        field.name: np.ascontiguousarray(np.concatenate([unroll[field.name] for unroll in unrolls]))
        for field in inserted_layout(LAYOUT).fields
    }
    message = InsertUnrolls(
        run="run",
        agent=agent,
        contract=CONTRACT,
        client=str(writer),
        id=sequence,
        oldest=oldest,
        num_unrolls=len(unrolls),
    ).model_copy(update=changes)
    actors = np.full((len(unrolls), 2), (4, 1 << 20), np.int64)
    head, *payload = [*encode(message), *pack_arrays(arrays)]
    read = REPLAY.decode(head)
    assert isinstance(read, InsertUnrolls)
    return read, [*payload, actors.tobytes()]
