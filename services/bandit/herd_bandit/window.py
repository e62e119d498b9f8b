"""Remembers what was answered and counted, so that a repeated message has no second effect. No I/O; bounded.

A client numbers its requests 1, 2, ... and has one under way, so only its newest request can be repeated. Its games
end in order within each environment slot, so only the last counted game of a slot must be remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_ENTRIES = 500_000
"""An entry is a client, one of its environment slots, or half a temperature of its newest answer. It takes about 115 bytes, so the window
takes 58 MB when full. 5,000 actors of 32 environments need 485,000 entries at the start (answers for all games) and 175,000 later."""
MAX_SLOTS = 4096
"""Largest number of slots of a client, 128 times those of an actor. The slot without a finished game for the longest time is forgotten
first. Without this limit a client that invents slots could take unbounded memory, because the last client is never forgotten."""
_ENTRIES_PER_TEMPERATURE = 2

Novelty = Literal["new", "repeated", "late"]
Handed = tuple[tuple[int, int, float], ...]
"""An answer: (environment slot, episode, 1/tau) of each game. Many are stored; as messages they would take four times as much memory."""


class RememberedClient(NamedTuple):
    """The part of a client's state that survives a restart."""

    name: str
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
    """Remembers the clients heard most recently, with at most ``max_entries`` entries over all clients.

    Beyond that, the client that has been silent longest is forgotten, and a request that it repeats is treated as new.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._clients: OrderedDict[str, _Client] = OrderedDict()
        self._num_entries = 0

    def __len__(self) -> int:
        """Return the number of remembered clients."""
        return len(self._clients)

    @property
    def num_entries(self) -> int:
        """Number of entries of all clients, slots and answers."""
        return self._num_entries

    def novelty(self, client_name: str, request_id: int) -> Novelty:
        """Return whether a request is new, a repetition of the newest one, or older."""
        client = self._clients.get(client_name)
        last = client.request_id if client is not None else 0
        return "new" if request_id > last else "repeated" if request_id == last else "late"

    def count_episode(self, client_name: str, slot: int, episode_id: int) -> Novelty:
        """Mark a game as counted if it is new, which means later than the last one of its slot."""
        client = self._take(client_name)
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
            self._put(client_name, client)

    def answered(self, client_name: str, request_id: int, answer: Handed) -> None:
        """Store the answer to a client's newest request in place of the previous one."""
        client = self._take(client_name)
        client.request_id, client.answer = request_id, answer
        self._put(client_name, client)

    def answer(self, client_name: str) -> Handed | None:
        """Return the answer to a client's newest request; None after a restart, which preserves only numbers."""
        client = self._clients.get(client_name)
        return client.answer if client is not None else None

    def remembered(self) -> Iterator[RememberedClient]:
        """Yield the clients for a snapshot, the one that has been silent longest first."""
        for client_name, client in self._clients.items():
            yield RememberedClient(client_name, client.request_id, client.episodes)

    def restore(self, remembered: RememberedClient) -> None:
        """Restore a client as the one heard last."""
        self._take(remembered.name)
        self._put(remembered.name, _Client(remembered.request_id, None, dict(remembered.episodes)))

    def _take(self, client_name: str) -> _Client:
        client = self._clients.pop(client_name, None)
        if client is None:
            return _Client()
        self._num_entries -= client.num_entries
        return client

    def _put(self, client_name: str, client: _Client) -> None:
        self._clients[client_name] = client  # at the end: heard last
        self._num_entries += client.num_entries
        while self._num_entries > self._max_entries and len(self._clients) > 1:
            _, forgotten = self._clients.popitem(last=False)
            self._num_entries -= forgotten.num_entries
