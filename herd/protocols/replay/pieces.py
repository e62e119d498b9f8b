"""Cuts episodes out of unrolls: which rows of an unroll belong to which game, and how a piece of a game is packed.

An unroll of T agent steps has rows 0..T, and row 0 repeats the last row of the unroll before; a game may end in its middle and the next
begin. Row and step i of an episode are the i-th since its game began; step i leads from row i to row i + 1. A *piece* is what one unroll
adds to one episode: steps [first_step, first_step + num_steps), the row after each of them, and row 0 with step 0. So every row of an
episode is in exactly one of its pieces, and every plane is kept once. The last row of an episode is what its last step led to, where
the environment shows it; the step that only starts the next game (``row_valid`` False) is no step of the episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from herd.contract.unroll import LINK_BITS
from herd.protocols.compression import compress, decompress
from herd.protocols.replay.records import MAX_EPISODE_STEPS, Episode, EpisodeKey, Piece
from herd.protocols.unrolls.arrays import unpack_fields
from herd.rpc.codec import MalformedMessage

if TYPE_CHECKING:
    from herd.contract.unroll import Array, Arrays, UnrollLayout
    from herd.transport import Frame


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of an unroll that belongs to one game; without a step if it only shows that the game has ended."""

    key: EpisodeKey
    task_id: int
    unroll: int
    """Number of the unroll in its message."""
    start_row: int
    """First row in the unroll."""
    num_steps: int
    first_step: int
    """First step in the episode."""
    num_rows: int
    """Number of new rows, see the module docstring."""
    is_end: bool
    """Whether the game ended with this segment's last step or the step before it."""


class PieceLayout:
    """How the rows and steps of a piece are laid out before compression: each field whole, rows first, C order, little endian."""

    def __init__(self, unroll: UnrollLayout) -> None:
        self.unroll = unroll
        self.rows = tuple(field for field in unroll.along("row") if field.name != "game_reset")  # which is true at row 0 only
        self.steps = unroll.along("step")
        self._entry_bytes = {field.name: field.bytes_per_unroll // field.shape[0] for field in (*self.rows, *self.steps)}
        self._row_bytes = sum(self._entry_bytes[field.name] for field in self.rows)
        self._step_bytes = sum(self._entry_bytes[field.name] for field in self.steps)

    def num_bytes(self, num_rows: int, num_steps: int) -> int:
        """Return the size before compression."""
        return num_rows * self._row_bytes + num_steps * self._step_bytes

    def max_packed_bytes(self, num_rows: int, num_steps: int) -> int:
        """Return a bound of the packed size: data that does not compress grows by far less than a half, and by a header."""
        return 3 * self.num_bytes(num_rows, num_steps) // 2 + 64

    def cut(self, arrays: Arrays, unroll: int, *, agent: int, actor_index: int, incarnation: int) -> list[Segment]:
        """Cut an unroll at the rows that start games, and leave out segments that add nothing.

        Args:
            arrays: by field [U, ...]; the steps of a burn-in belong to the unroll before.
            unroll: number of the unroll.
            agent: agent that the actor played for.
            actor_index: index of the actor.
            incarnation: incarnation of the actor's stream.

        Raises:
            MalformedMessage: the numbers of games and rows contradict each other, or a game is too long.

        """
        first_row = self.unroll.burn_in
        game_reset, row_valid = arrays["game_reset"][unroll, first_row:], arrays["row_valid"][unroll, first_row:]
        slot, task_id, episode_id, index = (
            int(arrays[name][unroll]) for name in ("environment_slot", "task_id", "episode_id", "index_in_episode")
        )
        if bool(game_reset[0]) != (index == 0) or index > MAX_EPISODE_STEPS - self.unroll.new_steps:
            raise MalformedMessage("game_reset and index_in_episode contradict each other, or a game is too long", "array")
        starts = [0, *(row for row in np.flatnonzero(game_reset).tolist() if row > 0)]
        segments = []
        for number, start in enumerate(starts):
            is_end = number + 1 < len(starts)
            stop_row = starts[number + 1] if is_end else len(game_reset)
            num_steps = stop_row - start if is_end and row_valid[stop_row - 1] else stop_row - start - 1
            first_step = index if number == 0 else 0
            if num_steps or (is_end and first_step):
                key = EpisodeKey(agent, actor_index, incarnation >> LINK_BITS, slot, episode_id + number)
                num_rows = stop_row - start - (first_step > 0)
                segments.append(Segment(key, task_id, unroll, first_row + start, num_steps, first_step, num_rows, is_end))
        return segments

    def pack(self, arrays: Arrays, segment: Segment) -> Episode:
        """Return what a segment of ``arrays`` adds to its episode: one piece or none, and the number of steps if the game has ended."""
        num_steps = segment.first_step + segment.num_steps if segment.is_end else 0
        if not segment.num_steps:
            return Episode(segment.key, segment.task_id, num_steps, ())
        begin = segment.start_row + (segment.first_step > 0)
        rows, steps = slice(begin, begin + segment.num_rows), slice(segment.start_row, segment.start_row + segment.num_steps)
        parts = [arrays[field.name][segment.unroll, rows].tobytes() for field in self.rows]
        parts += [arrays[field.name][segment.unroll, steps].tobytes() for field in self.steps]
        versions = tuple(arrays["policy_version"][segment.unroll].ravel().tolist())
        piece = Piece(segment.first_step, segment.num_steps, segment.num_rows, versions, compress("zstd", b"".join(parts)))
        return Episode(segment.key, segment.task_id, num_steps, (piece,))

    def unpack(self, packed: Frame, num_rows: int, num_steps: int) -> dict[str, Array]:
        """Return the arrays of a piece by field, [num_rows, ...] and [num_steps, ...].

        Raises:
            MalformedMessage: the size is wrong, or a value cannot be used.

        """
        raw = decompress("piece", "zstd", packed, self.num_bytes(num_rows, num_steps))
        return unpack_fields(raw, [*((field, num_rows) for field in self.rows), *((field, num_steps) for field in self.steps)])
