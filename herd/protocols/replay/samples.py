"""Parts of episodes as sent from replay to a learner, and their conversion to unrolls.

A `sampled` message has three payload frames: the table of its parts (`PART`), the table of their pieces (`PIECE`), and the packed
pieces, one behind the other. A part is some successive pieces of one episode: those that one unroll needs, or some successive unrolls.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from herd.protocols.replay.pieces import PieceLayout
from herd.protocols.replay.records import MAX_EPISODE_STEPS, PART, PIECE, EpisodeKey, check_pieces, check_place
from herd.rpc.codec import MalformedMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from herd.contract.unroll import Array, UnrollLayout
    from herd.protocols.replay.messages import Sampled
    from herd.protocols.replay.records import Table
    from herd.transport import Frame

MAX_ANSWER_BYTES = 16 << 20
"""Packed size of unrolls in one answer, which is exceeded by at most one unroll. 256 unrolls of Atari take 1 to 5 MB."""
PART_BYTES = 4 << 20
"""Packed size of a part of an episode, which contains at least one unroll: whole games of Atari, or some 300 steps of DeepMind Lab. Each
part repeats the last piece of the previous one."""


def max_answer_bytes(layout: UnrollLayout) -> int:
    """Return the largest packed size of an answer's pieces."""
    rows = 3 * layout.new_steps + layout.burn_in + layout.frame_stack  # an unroll begins and ends within pieces
    return MAX_ANSWER_BYTES + PieceLayout(layout).max_packed_bytes(rows, rows)


def rows_of_unroll(layout: UnrollLayout, first_step: int) -> tuple[int, int]:
    """Return the first and the last row of the episode that the unroll starting at ``first_step`` needs; they may lie outside of it."""
    return first_step - layout.burn_in - (layout.frame_stack - 1), first_step + layout.new_steps


def pieces_with_rows(first_steps: NDArray[np.int64], first_row: int, last_row: int) -> tuple[int, int]:
    """Return the range [begin, end) of pieces with these rows of an episode, and the step before each.

    ``first_steps``: [P] of its pieces, in ascending order. A row after the end of the episode belongs to the last piece, which may consist
    of a step without the row after it.
    """
    # Row r is stored with step r - 1, and row 0 with step 0.
    begin, last = np.searchsorted(first_steps, (max(first_row - 1, 0), max(last_row - 1, 0)), "right") - 1
    return max(int(begin), 0), int(last) + 1


class EpisodePart:
    """Consecutive pieces of one episode, from which unrolls can be cut. Not thread-safe."""

    def __init__(self, layout: PieceLayout, part: np.void, pieces: Table, packed: Sequence[Frame]) -> None:
        """``part``: a row of `PART`. ``pieces``: `PIECE` [P], and as many frames in ``packed``.

        Raises:
            MalformedMessage: they do not fit each other or the layout.

        """
        numbers: list[int] = list(part.tolist())
        *names, self.task_id, self.episode_steps, self.episode_rows, self.first_step, self.num_steps, _ = numbers
        self.layout = layout.unroll
        self.key = EpisodeKey(*names)
        self._pieces = pieces
        self._packed = packed
        self._piece_layout = layout
        self._unpacked: dict[int, dict[str, Array]] = {}
        """Pieces that the next unroll needs as well, by index."""
        self._check()

    @property
    def stop_step(self) -> int:
        """End of the sampled steps: one past the last."""
        return self.first_step + self.num_steps

    def unroll_at(self, first_step: int) -> StoredUnroll:
        """Return the unroll that starts at ``first_step``, a multiple of the unroll length from the game's start."""
        return StoredUnroll(self, first_step, min(self.layout.new_steps, self.stop_step - first_step))

    def unrolls(self) -> list[StoredUnroll]:
        """Return all unrolls; missing steps of an episode's last one are invalid."""
        return [self.unroll_at(step) for step in range(self.first_step, self.stop_step, self.layout.new_steps)]

    def is_followed_by(self, other: EpisodePart) -> bool:
        """Return whether ``other`` continues this part's episode where this part ends."""
        return (other.key, other.first_step, other.episode_steps) == (self.key, self.stop_step, self.episode_steps)

    def write(self, first_step: int, arrays: Mapping[str, Array], row: int) -> None:
        """Write the unroll that starts at ``first_step`` into entry ``row`` of each array [U, ...], in an actor's layout.

        Rows before the game or after its end are zero and invalid, and reset the core. The recurrent state is zero.

        Raises:
            MalformedMessage: a piece does not unpack.

        """
        layout, first_steps = self.layout, self._pieces["first_step"]
        # Views, also of single numbers.
        out = {field.name: arrays[field.name][row, ...] for field in layout.fields if field.name in arrays}
        for array in out.values():
            array[...] = 0
        base = first_step - layout.burn_in  # row of the episode that is row 0 of the unroll
        self._write_reset(out, base)
        identity: dict[str, Any] = {
            "environment_slot": self.key.environment_slot,
            "task_id": self.task_id,
            "episode_id": self.key.episode_id,
            "index_in_episode": first_step,
        }
        for name in identity.keys() & out.keys():
            out[name][...] = identity[name]
        for index in range(*pieces_with_rows(first_steps, *rows_of_unroll(layout, first_step))):
            self._write_piece(index, out, base)
            self._write_versions(index, out, first_step)
        next_step = first_step + layout.new_steps
        needed, _ = pieces_with_rows(first_steps, *rows_of_unroll(layout, next_step))
        if next_step >= self.stop_step:
            needed = len(first_steps)
        self._unpacked = {index: piece for index, piece in self._unpacked.items() if index >= needed}

    def _write_piece(self, index: int, out: Mapping[str, Array], base: int) -> None:
        """Write a piece's rows from ``base`` on, and its data before these rows."""
        piece, begin = self._unpack(index), int(self._pieces["first_step"][index])
        first_row = begin + (begin > 0)
        for fields, start in ((self._piece_layout.rows, first_row), (self._piece_layout.steps, begin)):
            for field in fields:
                if field.name in out:
                    _overlay(out[field.name], base, piece[field.name], start)
        if "history_frames" in out:
            _overlay(out["history_frames"], base - self.layout.frame_stack + 1, piece["frames"], first_row)
        # The step before row 0 is in the same piece as row 0.
        before = base - 1 - begin
        if 0 <= before < int(self._pieces["num_steps"][index]) and not piece["core_reset"][base - first_row]:
            for name, source in (("last_action", "actions"), ("last_reward", "rewards")):
                if name in out:
                    out[name][...] = piece[source][before]

    def _write_versions(self, index: int, out: Mapping[str, Array], first_step: int) -> None:
        """Write the policies of the first and of the last step if they are in this piece."""
        if "policy_version" not in out:
            return
        piece = self._pieces[index]
        begin, stop = int(piece["first_step"]), int(piece["first_step"] + piece["num_steps"])
        last_step = min(first_step + self.layout.new_steps, self.episode_steps) - 1
        if begin <= first_step < stop:
            out["policy_version"][0] = piece["begin_lineage"], piece["begin_updates"]
        if begin <= last_step < stop:
            out["policy_version"][1] = piece["end_lineage"], piece["end_updates"]

    def policy_version(self, first_step: int) -> tuple[int, int]:
        """Return (lineage, updates) of the policy at the start of the unroll with this step."""
        piece = self._pieces[int(np.searchsorted(self._pieces["first_step"], first_step, "right")) - 1]
        return int(piece["begin_lineage"]), int(piece["begin_updates"])

    def _write_reset(self, out: Mapping[str, Array], base: int) -> None:
        """Write where the core and the stack are reset, and the temperature of invalid rows."""
        if "inverse_temperature" in out:
            out["inverse_temperature"][...] = 1
        if "core_reset" in out:
            out["core_reset"][...] = True  # overwritten by rows of the episode
        if "game_reset" in out:
            for start in (-base, self.episode_rows - base):  # the game's first row, and the row after its last
                if 0 <= start < len(out["game_reset"]):
                    out["game_reset"][start] = True

    def _unpack(self, index: int) -> dict[str, Array]:
        known = self._unpacked.get(index)
        if known is None:
            piece = self._pieces[index]
            known = self._piece_layout.unpack(self._packed[index], int(piece["num_rows"]), int(piece["num_steps"]))
            self._unpacked[index] = known
        return known

    def _check(self) -> None:
        """Raise unless the pieces are successive, have valid sizes, and match the part."""
        heads = self._pieces.tolist()
        check_place(self.key, self.task_id, self._piece_layout)
        check_pieces(heads, self.episode_steps, self._piece_layout)
        if self.first_step < 0 or not 1 <= self.num_steps <= self.episode_steps - self.first_step:
            raise MalformedMessage("a sampled part outside its episode", "array")
        if self.episode_rows - self.episode_steps not in {0, 1} or self.episode_steps > MAX_EPISODE_STEPS:
            raise MalformedMessage("a sampled part with an impossible size", "array")
        if not heads or any(one[0] + one[1] != other[0] for one, other in pairwise(heads)):
            raise MalformedMessage("a sampled part whose pieces are not consecutive", "array")
        first_row, _ = rows_of_unroll(self.layout, self.first_step)
        last_row = min(self.stop_step, self.episode_rows - 1)
        begin, (first, steps, rows) = heads[0][0], heads[-1][:3]
        has_last_row = first + steps < self.episode_steps or rows == steps + (first == 0)
        if has_last_row != (first + steps < self.episode_rows):
            raise MalformedMessage("a sampled part with another number of rows", "array")
        if (begin and begin + 1 > max(first_row, 0)) or first + steps < max(self.stop_step, last_row):
            raise MalformedMessage("a sampled part with missing pieces", "array")


@dataclass(frozen=True, slots=True)
class StoredUnroll:
    """One unroll from replay, still packed."""

    part: EpisodePart
    first_step: int
    """First step in the episode."""
    num_steps: int
    """Number of valid steps; fewer than the unroll's length at the end of an episode."""

    @property
    def agent(self) -> int:
        """The agent that played it."""
        return self.part.key.agent

    @property
    def policy_version(self) -> tuple[int, int]:
        """(lineage, updates) of the policy that began it, counted by the agent that played it."""
        return self.part.policy_version(self.first_step)

    def write_into(self, arrays: Mapping[str, Array], row: int) -> None:
        """Write it into entry ``row`` of ``arrays`` [U, ...]; see `EpisodePart.write`."""
        self.part.write(self.first_step, arrays, row)


@dataclass(frozen=True, slots=True)
class SampledUnrolls:
    """Unrolls drawn uniformly over all unrolls of complete episodes, with replacement."""

    unrolls: list[StoredUnroll]


@dataclass(frozen=True, slots=True)
class SampledEpisode:
    """The first part of an episode, drawn uniformly over complete episodes, or the part that follows another."""

    part: EpisodePart | None
    """None if replay no longer has what follows ``after``."""
    after: EpisodePart | None = None
    """The part before this one."""


def read_parts(message: Sampled, frames: Sequence[Frame], layout: PieceLayout) -> list[EpisodePart]:
    """Return the parts of a message; ``frames`` without the header. Nothing is unpacked, and nothing copied.

    Raises:
        MalformedMessage: the frames do not fit the header, or each other.

    """
    if len(frames) != 3:
        raise MalformedMessage(f"a sample with {len(frames)} payload frames", "array")
    parts = _table(frames[0], PART, message.num_parts)
    pieces = _table(frames[1], PIECE, message.num_pieces)
    packed = list(_split(memoryview(frames[2]), pieces["num_bytes"]))
    counts = parts["num_pieces"]
    if (len(parts) and (counts.min() < 1 or counts.max() > len(pieces))) or int(counts.sum()) != len(pieces):
        raise MalformedMessage("a sample whose parts do not match its pieces", "array")
    ends = np.cumsum(counts).tolist()
    return [
        EpisodePart(layout, part, pieces[end - count : end], packed[end - count : end])
        for part, end, count in zip(parts, ends, counts.tolist(), strict=True)
    ]


def _table(frame: Frame, dtype: np.dtype[Any], length: int) -> Table:
    if len(frame) != length * dtype.itemsize:
        raise MalformedMessage(f"a table of {len(frame)} bytes, expected {length * dtype.itemsize}", "size")
    table: Table = np.frombuffer(frame, dtype)
    return table


def _split(packed: memoryview, sizes: NDArray[np.int64]) -> Iterator[memoryview]:
    if (len(sizes) and (sizes.min() < 1 or sizes.max() > len(packed))) or int(sizes.sum()) != len(packed):
        raise MalformedMessage("packed pieces whose sizes differ from the table", "size")
    begin = 0
    for size in sizes.tolist():
        yield packed[begin : begin + size]
        begin += size


def _overlay(target: Array, target_begin: int, source: Array, source_begin: int) -> None:
    """Copy the overlap: entry i of ``target`` is entry ``target_begin`` + i of the episode, and likewise for ``source``."""
    begin = max(target_begin, source_begin)
    end = min(target_begin + len(target), source_begin + len(source))
    if begin < end:
        target[begin - target_begin : end - target_begin] = source[begin - source_begin : end - source_begin]
