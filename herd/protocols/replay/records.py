"""Records of episodes: the format in which pieces are sent to replay, and in which it stores them in memory and on disk.

A record describes an episode, or the pieces of one that are known so far: one row of `PART`, one row of `PIECE` for each piece, the packed
pieces, and zeros up to a multiple of 8 bytes. Records follow each other. All numbers are signed, little endian, of 64 bits.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from herd.config.run import MAX_AGENTS
from herd.contract.unroll import MAX_EPISODE_ID
from herd.protocols.compression import check_declared_size
from herd.rpc.codec import MalformedMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from herd.protocols.replay.pieces import PieceLayout
    from herd.transport import Frame

    Table = NDArray[np.void]

MAX_EPISODE_STEPS = 1 << 24
"""Maximum steps of a game: 600 times the 27,000 steps of Atari's time limit."""
MAX_INDEX = (1 << 31) - 1
"""Maximum index of environments and tasks, which are sent as i4."""
RECORD_ALIGNMENT = 8
"""Alignment of records, because their tables are read in place."""


class EpisodeKey(NamedTuple):
    """Identifies a game among all games of a run."""

    agent: int
    actor_index: int
    process: int
    """The actor's incarnation without the bits of the link."""
    environment_slot: int
    episode_id: int


class Piece(NamedTuple):
    """What one unroll adds to a game; at least one step."""

    first_step: int
    num_steps: int
    num_rows: int
    versions: tuple[int, ...]
    """(lineage, updates, lineage, updates) of the policies at the first and at the last row of the unroll."""
    packed: Frame

    @property
    def head(self) -> tuple[int, ...]:
        """Return its row of `PIECE`."""
        return self.first_step, self.num_steps, self.num_rows, len(self.packed), *self.versions


class Episode(NamedTuple):
    """A game, or the known pieces of one, in order."""

    key: EpisodeKey
    task_id: int
    num_steps: int
    """Steps of the whole game; 0 if its end is not known."""
    pieces: tuple[Piece, ...]

    @property
    def num_rows(self) -> int:
        """Rows of the pieces; of a whole game one more than its steps, unless there is no observation after the last step."""
        return sum(piece.num_rows for piece in self.pieces)

    @property
    def is_whole(self) -> bool:
        """Whether the pieces cover the whole game without a gap. Only the last one may lack the row after its last step."""
        step = 0
        for piece in self.pieces:
            lacks_row = piece.num_rows < piece.num_steps + (piece.first_step == 0)
            if piece.first_step != step or (lacks_row and step + piece.num_steps < self.num_steps):
                return False
            step += piece.num_steps
        return 0 < step == self.num_steps


PIECE = np.dtype(
    [
        (name, "<i8")
        for name in ("first_step", "num_steps", "num_rows", "num_bytes", "begin_lineage", "begin_updates", "end_lineage", "end_updates")
    ]
)
"""A piece: its position in the episode, its packed size, and the policies at the first and the last row of its unroll."""
PART = np.dtype(
    [(name, "<i8") for name in (*EpisodeKey._fields, "task_id", "episode_steps", "episode_rows", "first_step", "num_steps", "num_pieces")]
)
"""A part of an episode: the episode, its size, the part's steps, and the number of its pieces. A record is a part from step 0 on."""
_PART, _PIECE = struct.Struct(f"<{PART.itemsize // 8}q"), struct.Struct(f"<{PIECE.itemsize // 8}q")


def replica_of(key: EpisodeKey, num_replicas: int) -> int:
    """Return the replica of the replay service that stores this episode: a hash that is the same in every process and release."""
    return zlib.crc32(struct.pack("<5q", *key)) % num_replicas


def record_of(episode: Episode) -> list[Frame]:
    """Return the record of an episode, in parts."""
    key, task_id, num_steps, pieces = episode
    parts: list[Frame] = [_PART.pack(*key, task_id, num_steps, episode.num_rows, 0, num_steps, len(pieces))]
    parts += [_PIECE.pack(*piece.head) for piece in pieces]
    parts += [piece.packed for piece in pieces]
    return [*parts, bytes(-sum(map(len, parts)) % RECORD_ALIGNMENT)]


def read_records(take: Callable[[int], Frame], num_bytes: int, layout: PieceLayout) -> Iterator[tuple[int, Episode]]:
    """Yield the episodes in ``num_bytes`` of records that anyone may have written, each with the position of its record.

    ``take`` returns the next bytes, as many as it is asked for. Everything is checked except the contents of packed pieces.

    Raises:
        MalformedMessage: a record ends too early, or contains a number that is out of range or contradicts another one.

    """
    position = 0

    def read(size: int) -> Frame:
        nonlocal position
        position += size
        if position > num_bytes or len(data := take(size)) < size:
            raise MalformedMessage("a record that ends too early", "size")
        return data

    while position < num_bytes:
        begin = position
        *names, task_id, num_steps, num_rows, first_step, part_steps, num_pieces = _PART.unpack(read(_PART.size))
        key = EpisodeKey(*names)
        check_place(key, task_id, layout)
        if not 0 <= num_steps <= MAX_EPISODE_STEPS or (first_step, part_steps) != (0, num_steps) or num_pieces < 0:
            raise MalformedMessage("a record of an impossible size", "array")
        heads = list(_PIECE.iter_unpack(read(num_pieces * _PIECE.size)))
        check_pieces(heads, num_steps, layout)
        pieces = tuple(Piece(head[0], head[1], head[2], head[4:], read(head[3])) for head in heads)
        for piece in pieces:
            check_declared_size("piece", piece.packed, layout.num_bytes(piece.num_rows, piece.num_steps))
        read(-position % RECORD_ALIGNMENT)
        episode = Episode(key, task_id, num_steps, pieces)
        if episode.num_rows != num_rows:
            raise MalformedMessage("a record with another number of rows than its pieces", "array")
        yield begin, episode


def check_place(key: EpisodeKey, task_id: int, layout: PieceLayout) -> None:
    """Raise ``MalformedMessage`` unless there can be such a game in the run."""
    last_task = MAX_INDEX if layout.unroll.num_tasks is None else layout.unroll.num_tasks - 1
    highest = EpisodeKey(MAX_AGENTS - 1, key.actor_index, key.process, MAX_INDEX, MAX_EPISODE_ID + layout.unroll.new_steps)
    if min(*key, task_id) < 0 or task_id > last_task or any(number > limit for number, limit in zip(key, highest, strict=True)):
        raise MalformedMessage("an episode of an impossible agent, environment, task or number", "array")


def check_pieces(heads: Sequence[tuple[int, ...]], num_steps: int, layout: PieceLayout) -> None:
    """Raise ``MalformedMessage`` unless these rows of `PIECE` can belong to one episode; ``num_steps`` is 0 if its end is not known."""
    stop = 0
    for first_step, steps, rows, num_bytes, *versions in heads:
        if first_step < stop or not 1 <= steps <= layout.unroll.new_steps:
            raise MalformedMessage("pieces that are not in order, or of an impossible size", "array")
        stop = first_step + steps
        all_rows = steps + (first_step == 0)
        if rows != all_rows and (rows != all_rows - 1 or stop != num_steps):
            raise MalformedMessage("a piece without a row that is not the last one", "array")
        if min(versions) < 0 or not 1 <= num_bytes <= layout.max_packed_bytes(rows, steps):
            raise MalformedMessage("a piece with an impossible version, or too large", "array")
    if stop > (num_steps or MAX_EPISODE_STEPS):
        raise MalformedMessage("pieces beyond the end of their episode", "array")
