"""Whose environments the service knows: a place for the state of each, and the last answer of each client. No I/O.

A session is one group of an actor's environments, by the name of its connection: (actor index, incarnation, group). Its environments
have neighbouring places in the memory of states. Where there is none left, sessions that were silent the longest make room: their
clients are asked for the state again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.wire.acting_rows import ActingRows
    from herd.wire.codec import Frame

Span = tuple[int, int]
"""Places: the first, and the one after the last."""


@dataclass(slots=True, eq=False)
class Session:
    """One group of environments."""

    peer: bytes
    agent: int
    places: Span
    last_id: int = 0
    """Of the newest request that was taken."""
    waiting: Request | None = None
    """That request, until it is answered."""
    answer: list[Frame] = field(default_factory=list)
    """To that request, once there is one."""

    @property
    def num_environments(self) -> int:
        """E."""
        first, end = self.places
        return end - first


@dataclass(slots=True, eq=False)
class Request:
    """A row that a session waits to be acted on."""

    session: Session
    request_id: int
    rows: ActingRows
    has_state: bool
    arrived_at: float
    """Monotonic seconds."""

    @property
    def is_wanted(self) -> bool:
        """Whether its client still waits for it: it has neither asked about another row, nor made room."""
        return self.session.waiting is self


class Places:
    """Ranges of places 0..capacity-1, first fit."""

    def __init__(self, capacity: int) -> None:
        self._free: list[Span] = [(0, capacity)]

    def take(self, count: int) -> Span | None:
        """Return ``count`` neighbouring places; None if there are none."""
        for index, (first, end) in enumerate(self._free):
            if end - first >= count:
                self._free[index : index + 1] = [(first + count, end)] if end - first > count else []
                return first, first + count
        return None

    def give_back(self, places: Span) -> None:
        """Make ``places`` free again."""
        first, end = places
        index = bisect_left(self._free, places)
        before = self._free[index - 1] if index and self._free[index - 1][1] == first else None
        after = self._free[index] if index < len(self._free) and self._free[index][0] == end else None
        joined = (before[0] if before else first, after[1] if after else end)
        self._free[index - (before is not None) : index + (after is not None)] = [joined]


class Sessions:
    """All of them, the longest silent first."""

    def __init__(self, capacity: int, on_end: Callable[[Session], None]) -> None:
        """``capacity``: environments; ``on_end`` hears of every session that goes."""
        self.num_environments = 0
        """Whose state is kept."""
        self.num_evicted = 0
        """Environments whose state made room for others'."""
        self._capacity = capacity
        self._on_end = on_end
        self._places = Places(capacity)
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def __len__(self) -> int:
        """Sessions that there are."""
        return len(self._sessions)

    def heard(self, peer: bytes) -> Session | None:
        """The session of a client that has just spoken; None if it has none."""
        session = self._sessions.get(peer)
        if session is not None:
            self._sessions.move_to_end(peer)
        return session

    def open(self, peer: bytes, agent: int, num_environments: int) -> Session:
        """A new session, in place of the one that the client had.

        Raises:
            ValueError: more environments than there are places at all.
        """
        if num_environments > self._capacity:
            raise ValueError(f"{num_environments} environments in {self._capacity} places")
        if (old := self._sessions.get(peer)) is not None:
            self._end(old)
        while (places := self._places.take(num_environments)) is None:
            longest_silent = next(iter(self._sessions.values()))
            self.num_evicted += longest_silent.num_environments
            self._end(longest_silent)
        session = self._sessions[peer] = Session(peer, agent, places)
        self.num_environments += num_environments
        return session

    def _end(self, session: Session) -> None:
        del self._sessions[session.peer]
        session.waiting = None
        self._on_end(session)
        self._places.give_back(session.places)
        self.num_environments -= session.num_environments
