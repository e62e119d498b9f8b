"""Requests that a replica has relayed to its parent and that are not answered yet. No I/O; the caller passes the time.

Lost requests need no handling: the client repeats its request, which replaces the older one.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herd.transport import Peer

UNDER_WAY_SECONDS = 30.0
"""Twice the longest time after which a client repeats a request (10 s, with jitter 15 s). No client waits for a later answer."""
RING_SECONDS = 0.25
"""A client repeats a request after 0.5 s at the earliest. A request that returns sooner from another peer has gone round in a ring."""
MAX_UNDER_WAY = 16_384
"""Four times the 4,000 actors for which the system is designed, about 8 MB. The oldest entry is dropped first; its client asks again."""


class RingError(RuntimeError):
    """A request that was relayed a moment ago has come back: the tree has no root."""


@dataclass(frozen=True, slots=True)
class _UnderWay:
    relay_id: int
    peer: Peer
    request_id: int | None
    passed_at: float


class RelayTable:
    """The addressee of each answer of the parent. ``now`` is any monotonic clock in seconds.

    There is one entry per holder, because a holder has one request under way.
    """

    def __init__(self, *, max_under_way: int = MAX_UNDER_WAY) -> None:
        self._max_under_way = max_under_way
        # Oldest first, because all entries have the same lifetime.
        self._by_holder: OrderedDict[str, _UnderWay] = OrderedDict()
        self._holders: dict[int, str] = {}
        self._relay_ids = count(1)

    def __len__(self) -> int:
        return len(self._by_holder)

    def pass_on(self, holder: str, peer: Peer, *, now: float, request_id: int | None = None) -> int:
        """Record that a message about ``holder`` from ``peer`` goes to the parent; returns its request id there.

        ``request_id``: the client's own; None if no answer is expected.

        Raises:
            RingError: the message was here before and must not be relayed again.

        """
        self.expire(now)
        earlier = self._by_holder.get(holder)
        if earlier is not None and earlier.peer != peer and now - earlier.passed_at < RING_SECONDS:
            raise RingError("an index request came back to a parameter server that had relayed it")
        self._forget(holder)
        while len(self._by_holder) >= self._max_under_way:
            self._forget(next(iter(self._by_holder)))
        entry = _UnderWay(next(self._relay_ids), peer, request_id, now)
        self._by_holder[holder] = entry
        self._holders[entry.relay_id] = holder
        return entry.relay_id

    def answered(self, relay_id: int) -> tuple[Peer, int] | None:
        """Return (peer, its own request id) for the answer to ``relay_id``; None if no client waits for it any more."""
        holder = self._holders.get(relay_id)
        if holder is None:
            return None
        entry = self._by_holder[holder]
        self._forget(holder)
        return None if entry.request_id is None else (entry.peer, entry.request_id)

    def expire(self, now: float) -> None:
        """Remove requests for which no client waits any more."""
        while self._by_holder:
            holder, entry = next(iter(self._by_holder.items()))
            if now - entry.passed_at < UNDER_WAY_SECONDS:
                return
            self._forget(holder)

    def _forget(self, holder: str) -> None:
        entry = self._by_holder.pop(holder, None)
        if entry is not None:
            del self._holders[entry.relay_id]
