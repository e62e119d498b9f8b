"""Cuts episodes out of unrolls: which rows of an unroll belong to which game, and how a piece of a game is packed.

An unroll of T agent steps has rows 0..T, and row 0 repeats the last row of the unroll before; a game may end in its middle and the next
begin. Row and step i of an episode are the i-th since its game began; step i leads from row i to row i + 1. A *piece* is what one unroll
adds to one episode: steps [first_step, first_step + num_steps), the row after each of them, and row 0 with step 0. So every row of an
episode is in exactly one of its pieces, and every plane is kept once. The last row of an episode is what its last step led to, where
the environment shows it; the step that only starts the next game (``row_valid`` False) is no step of the episode.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from herd.protocols.compression import compress, decompress
from herd.protocols.unrolls.arrays import values_fit
from herd.rpc.codec import MalformedMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from herd.contract.unroll import Array, Arrays, UnrollLayout
    from herd.transport import Frame

_KEY = struct.Struct("<5q")


class EpisodeKey(NamedTuple):
    """Identifies a game among all games of a run."""

    agent: int
    actor_index: int
    process: int
    """The actor's incarnation without the bits of the link."""
    environment_slot: int
    episode_id: int


def replica_of(key: EpisodeKey, num_replicas: int) -> int:
    """Return the replica of the replay service that stores this episode: a hash that is the same in every process and release."""
    return zlib.crc32(_KEY.pack(*key)) % num_replicas


def inserted_layout(layout: UnrollLayout) -> UnrollLayout:
    """Return the layout of an unroll as sent to replay: without repeated rows, stacks and recurrent states."""
    return replace(layout, unroll_length=layout.new_steps, burn_in=0, frame_stack=1, state_size=0)


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of an unroll that belongs to one game."""

    episode_id: int
    start_row: int
    """First row in the unroll."""
    num_steps: int
    first_step: int
    """First step in the episode."""
    num_rows: int
    """Number of new rows, see the module docstring."""
    is_end: bool
    """Whether the game ended with this segment's last step or the step before it."""

    @property
    def first_row(self) -> int:
        """First new row in the unroll."""
        return self.start_row + (self.first_step > 0)

    @property
    def stop_step(self) -> int:
        """End in the episode: one past the last step."""
        return self.first_step + self.num_steps


def segments_of(
    game_reset: NDArray[np.bool_], row_valid: NDArray[np.bool_], *, episode_id: int, index_in_episode: int
) -> Iterator[Segment]:
    """Cut one unroll (``game_reset`` [T + 1], ``row_valid`` [T]) at the rows that start games; segments that add nothing are left out."""
    last_row = len(row_valid)
    starts = [0, *(row for row in np.flatnonzero(game_reset).tolist() if row > 0)]
    for number, start in enumerate(starts):
        is_end = number + 1 < len(starts)
        stop_row = starts[number + 1] if is_end else last_row + 1
        num_steps = stop_row - start if is_end else last_row - start
        if is_end and not row_valid[stop_row - 1]:
            num_steps -= 1
        first_step = index_in_episode if number == 0 else 0
        if num_steps or (is_end and first_step):
            num_rows = stop_row - start - (first_step > 0)
            yield Segment(episode_id + number, start, num_steps, first_step, num_rows, is_end)


class PieceLayout:
    """How the rows and steps of a piece are laid out before compression: each field whole, rows first, C order, little endian."""

    def __init__(self, layout: UnrollLayout) -> None:
        self.rows = tuple(field for field in layout.along("row") if field.name != "game_reset")  # which is true at row 0 only
        self.steps = layout.along("step")
        self._entry_bytes = {field.name: field.bytes_per_unroll // field.shape[0] for field in (*self.rows, *self.steps)}
        self._row_bytes = sum(self._entry_bytes[field.name] for field in self.rows)
        self._step_bytes = sum(self._entry_bytes[field.name] for field in self.steps)

    def num_bytes(self, num_rows: int, num_steps: int) -> int:
        """Return the size before compression."""
        return num_rows * self._row_bytes + num_steps * self._step_bytes

    def pack(self, arrays: Arrays, unroll: int, segment: Segment) -> bytes:
        """Compress what ``segment`` adds to its episode; ``arrays`` by field [U, ...]."""
        rows = slice(segment.first_row, segment.first_row + segment.num_rows)
        steps = slice(segment.start_row, segment.start_row + segment.num_steps)
        parts = [arrays[field.name][unroll, rows].tobytes() for field in self.rows]
        parts += [arrays[field.name][unroll, steps].tobytes() for field in self.steps]
        return compress("zstd", b"".join(parts))

    def unpack(self, packed: Frame, num_rows: int, num_steps: int) -> dict[str, Array]:
        """Return the arrays of a piece by field, [num_rows, ...] and [num_steps, ...].

        Raises:
            MalformedMessage: the size is wrong, or a value cannot be used.

        """
        raw = decompress("piece", "zstd", packed, self.num_bytes(num_rows, num_steps))
        arrays: dict[str, Array] = {}
        offset = 0
        for fields, count in ((self.rows, num_rows), (self.steps, num_steps)):
            for field in fields:
                size = count * self._entry_bytes[field.name]
                array = np.frombuffer(raw, field.dtype, size // field.dtype.itemsize, offset).reshape(count, *field.entry_shape)
                if not values_fit(field, array):
                    raise MalformedMessage(f"a piece whose {field.name} contains a value out of range", "array")
                arrays[field.name] = array
                offset += size
        return arrays


def check_episode_fields(arrays: Arrays) -> None:
    """Check that a row is its game's first where it says that it is; ``arrays`` by field [U, ...].

    Raises:
        MalformedMessage: the two contradict each other.

    """
    if not np.array_equal(arrays["game_reset"][:, 0], arrays["index_in_episode"] == 0):
        raise MalformedMessage("game_reset and index_in_episode of a row 0 contradict each other", "array")
