"""Assembles episodes from the pieces in unrolls, which may arrive in any order. No I/O; bounded.

A piece contains its position in its game. A game is complete when its end is known and its pieces cover all steps from the first to the
end. If a piece is missing, because an unroll was stale, lost or dropped, the game never becomes complete. It is discarded when its
environment has begun the game after the next one, and not earlier, because shards of a learner forward neighbouring unrolls in any order.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from herd.protocols.replay.records import Episode, EpisodeKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from herd.protocols.replay.records import Piece

PATIENCE_GAMES = 2
"""Number of games of one environment that may be open: the newest one, and the previous one, whose last pieces may be late."""
MAX_SLOTS = 1 << 18
"""Number of environments to remember, which take 100 MB: 4,000 actors have 128,000. The one silent longest is forgotten first."""
SLOT_BYTES = 700
"""Memory of one environment."""
OPEN_PIECE_BYTES = 430
"""Memory of a piece of an open episode, in addition to its packed contents."""

Discarded = Literal["hole", "open"]
"""Why an episode is discarded: a piece is missing; open episodes took too much memory."""
Dropped = Literal["duplicate", "late"]
"""Why a piece is dropped: its game already has it, or has ended."""


@dataclass(slots=True)
class OpenEpisode:
    """A game of which some pieces have arrived."""

    task_id: int
    pieces: dict[int, Piece] = field(default_factory=dict)
    """Pieces by first step."""
    num_steps: int = 0
    num_bytes: int = 0
    end: int = 0
    """Number of steps of the game; 0 until it is known."""

    def episode(self, key: EpisodeKey) -> Episode:
        """Return what has arrived, in order."""
        return Episode(key, self.task_id, self.end, tuple(self.pieces[step] for step in sorted(self.pieces)))


@dataclass(slots=True)
class _Slot:
    """One environment: its open games, and which of the newest games have ended."""

    newest: int = 0
    open: set[int] = field(default_factory=set)
    over: set[int] = field(default_factory=set)


class Assembler:
    """The open episodes of all environments, with at most ``max_bytes`` of memory in total."""

    def __init__(self, max_bytes: int, *, max_slots: int = MAX_SLOTS) -> None:
        self.num_discarded: Counter[Discarded] = Counter()
        """Number of episodes."""
        self.num_dropped: Counter[Dropped] = Counter()
        """Pieces."""
        self.num_steps = 0
        """In open episodes."""
        self.num_bytes = 0
        """Of memory in open episodes, without the environments'."""
        self.max_bytes = max_bytes
        """Limit of ``num_bytes``."""
        self._max_slots = max_slots
        self._open: OrderedDict[EpisodeKey, OpenEpisode] = OrderedDict()
        """The environment that has been silent longest comes first."""
        self._slots: OrderedDict[tuple[int, int, int, int], _Slot] = OrderedDict()

    @property
    def num_open(self) -> int:
        """Number of open episodes."""
        return len(self._open)

    @property
    def total_bytes(self) -> int:
        """Memory of open episodes and environments."""
        return self.num_bytes + len(self._slots) * SLOT_BYTES

    def insert(self, part: Episode) -> Episode | None:
        """Add pieces of a game, and the game's number of steps if it is known; return the game if it is now complete.

        Pieces that the game already has, and those of a game that has ended, are dropped and counted.
        """
        key = part.key
        slot = self._slot(key)
        if key.episode_id <= slot.newest - PATIENCE_GAMES or key.episode_id in slot.over:
            self.num_dropped["late"] += 1
            return None
        if key.episode_id > slot.newest:
            self._begin(key, slot)
        known = self._open.pop(key, None)
        if known is None:
            known = OpenEpisode(part.task_id)
            slot.open.add(key.episode_id)
        self._open[key] = known  # moved to the end: heard last
        known.end = known.end or part.num_steps
        for piece in part.pieces:
            self._add(known, piece)
        if known.num_steps == known.end and (episode := known.episode(key)).is_whole:
            self._close(key)
            return episode
        while self.num_bytes > self.max_bytes:
            self._discard(next(iter(self._open)), "open")
        return None

    def finished(self, key: EpisodeKey) -> None:
        """Mark a game of a restored state as ended and stored."""
        slot = self._slot(key)
        if key.episode_id > slot.newest:
            self._begin(key, slot)
        slot.over.add(key.episode_id)

    def open_episodes(self) -> Iterator[Episode]:
        """Yield all open episodes, those of the environment that has been silent longest first."""
        for key, known in self._open.items():
            yield known.episode(key)

    def _slot(self, key: EpisodeKey) -> _Slot:
        name = key[:4]
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = _Slot()
            if len(self._slots) > self._max_slots:
                forgotten, lost = self._slots.popitem(last=False)
                self._discard_all((EpisodeKey(*forgotten, episode_id) for episode_id in lost.open), "open")
        self._slots.move_to_end(name)
        return slot

    def _begin(self, key: EpisodeKey, slot: _Slot) -> None:
        """Start a newer game. Games older by ``PATIENCE_GAMES`` or more are closed."""
        slot.newest = key.episode_id
        oldest = slot.newest - PATIENCE_GAMES
        self._discard_all([key._replace(episode_id=episode_id) for episode_id in slot.open if episode_id <= oldest], "hole")
        slot.over = {episode_id for episode_id in slot.over if episode_id > oldest}

    def _add(self, known: OpenEpisode, piece: Piece) -> None:
        if piece.first_step in known.pieces:
            self.num_dropped["duplicate"] += 1
            return
        known.pieces[piece.first_step] = piece
        known.num_steps += piece.num_steps
        num_bytes = len(piece.packed) + OPEN_PIECE_BYTES
        known.num_bytes += num_bytes
        self.num_steps += piece.num_steps
        self.num_bytes += num_bytes

    def _discard_all(self, keys: Iterable[EpisodeKey], reason: Discarded) -> None:
        for key in keys:
            self._discard(key, reason)

    def _discard(self, key: EpisodeKey, reason: Discarded) -> None:
        self._close(key)
        self.num_discarded[reason] += 1

    def _close(self, key: EpisodeKey) -> None:
        closed = self._open.pop(key)
        self.num_steps -= closed.num_steps
        self.num_bytes -= closed.num_bytes
        slot = self._slots.get(key[:4])
        if slot is not None:
            slot.open.discard(key.episode_id)
            slot.over.add(key.episode_id)
