"""The format of a complete episode in memory and on disk: a `PART` that covers all of it, the `PIECE` table, the packed pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from herd.protocols.replay.pieces import EpisodeKey
from herd.protocols.replay.samples import PART, PIECE

if TYPE_CHECKING:
    from herd.protocols.replay.samples import Table
    from herd_replay.assembly import Episode


def record_parts(episode: Episode) -> list[bytes]:
    """Return the bytes of an episode's record, in parts."""
    num_pieces = len(episode.pieces)
    part = np.array([(*episode.key, episode.task_id, episode.num_steps, episode.num_rows, 0, episode.num_steps, num_pieces)], PART)
    table = np.array(
        [(piece.first_step, piece.num_steps, piece.num_rows, len(piece.packed), *piece.versions) for piece in episode.pieces], PIECE
    )
    return [part.tobytes(), table.tobytes(), *(piece.packed for piece in episode.pieces)]


class Record:
    """A record, read in place."""

    __slots__ = ("num_bytes", "packed", "part", "pieces")

    def __init__(self, memory: memoryview) -> None:
        """``memory`` begins with the record.

        Raises:
            ValueError: it is shorter than the record.

        """
        self.part: Table = np.frombuffer(memory, PART, 1)
        begin = PART.itemsize
        self.pieces: Table = np.frombuffer(memory, PIECE, int(self.part[0]["num_pieces"]), begin)
        begin += self.pieces.nbytes
        self.num_bytes = begin + int(self.pieces["num_bytes"].sum())
        """Size of the record."""
        if self.num_bytes > len(memory):
            raise ValueError(f"a record of {self.num_bytes} bytes in {len(memory)}")
        self.packed = memory[begin : self.num_bytes]
        """All packed pieces, one after the other."""

    @property
    def key(self) -> EpisodeKey:
        """Return the key of the episode."""
        return EpisodeKey(*(int(self.part[0][name]) for name in EpisodeKey._fields))
