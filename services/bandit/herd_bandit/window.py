"""What has been answered and counted already, so that a message sent twice changes nothing twice. No I/O; bounded.

A client is an incarnation: it numbers its requests 1, 2, ... and has one under way, so its newest request is all that can come again.
Its games end in order within each environment slot, so the last one counted is all that must be remembered of a slot.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_ENTRIES = 500_000
"""An entry is a client, an environment slot of one, or half a temperature of its newest answer. About 115 bytes each, 58 MB when full.
5,000 actors of 32 environments come to 485,000 while they start, each with an answer for all its games, and to 175,000 later."""
MAX_SLOTS = 4096
"""Of one client, 128 times what an actor has; the one that ended no game for longest is forgotten first. Else one that invents slots
would hold memory without bound, as the last client is never forgotten."""
_ENTRIES_PER_TEMPERATURE = 2

Novelty = Literal["new", "repeated", "late"]
Handed = tuple[tuple[int, int, float], ...]
"""An answer: (environment slot, episode, 1/tau) of each game. Plain, because many are kept: as messages they take four times as much."""


class RememberedClient(NamedTuple):
    """What must survive a restart."""

    incarnation: int
    request_id: int
    episodes: Mapping[int, int]
    """Environment slot -> number of its last counted game."""


@dataclass(slots=True)
class _Client:
    request_id: int = 0
    answer: Handed | None = None
    episodes: dict[int, int] = field(default_factory=dict)

    @property
    def num_entries(self) -> int:
        kept = len(self.answer) if self.answer is not None else 0
        return 1 + len(self.episodes) + _ENTRIES_PER_TEMPERATURE * kept


class RequestWindow:
    """Remembers the clients heard most recently, at most ``max_entries`` entries over all.

    Beyond that the client silent the longest is forgotten: a request that it sends again is taken for a new one.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._clients: OrderedDict[int, _Client] = OrderedDict()
        self._num_entries = 0

    def __len__(self) -> int:
        """Clients remembered."""
        return len(self._clients)

    @property
    def num_entries(self) -> int:
        """Clients and slots remembered, and answers in their measure."""
        return self._num_entries

    def novelty(self, incarnation: int, request_id: int) -> Novelty:
        """Tell whether a request is new, the newest one again, or older than that."""
        client = self._clients.get(incarnation)
        last = client.request_id if client is not None else 0
        return "new" if request_id > last else "repeated" if request_id == last else "late"

    def count_episode(self, incarnation: int, slot: int, episode_id: int) -> Novelty:
        """Note that a game is counted, if it is new: the next one of its slot, or a later one."""
        client = self._take(incarnation)
        try:
            last = client.episodes.get(slot, -1)
            if episode_id > last:
                client.episodes.pop(slot, None)  # at the end: heard last
                client.episodes[slot] = episode_id
                if len(client.episodes) > MAX_SLOTS:
                    del client.episodes[next(iter(client.episodes))]
                return "new"
            return "repeated" if episode_id == last else "late"
        finally:
            self._put(incarnation, client)

    def answered(self, incarnation: int, request_id: int, answer: Handed) -> None:
        """Keep the answer to a client's newest request, in place of the one before."""
        client = self._take(incarnation)
        client.request_id, client.answer = request_id, answer
        self._put(incarnation, client)

    def answer(self, incarnation: int) -> Handed | None:
        """Return the answer to a client's newest request; None after a restart, which keeps numbers only."""
        client = self._clients.get(incarnation)
        return client.answer if client is not None else None

    def remembered(self) -> Iterator[RememberedClient]:
        """Give what a snapshot needs, the client silent the longest first."""
        for incarnation, client in self._clients.items():
            yield RememberedClient(incarnation, client.request_id, client.episodes)

    def restore(self, remembered: RememberedClient) -> None:
        """Take a client in as the one heard last."""
        self._take(remembered.incarnation)
        self._put(remembered.incarnation, _Client(remembered.request_id, None, dict(remembered.episodes)))

    def _take(self, incarnation: int) -> _Client:
        client = self._clients.pop(incarnation, None)
        if client is None:
            return _Client()
        self._num_entries -= client.num_entries
        return client

    def _put(self, incarnation: int, client: _Client) -> None:
        self._clients[incarnation] = client  # at the end: heard last
        self._num_entries += client.num_entries
        while self._num_entries > self._max_entries and len(self._clients) > 1:
            _, forgotten = self._clients.popitem(last=False)
            self._num_entries -= forgotten.num_entries
