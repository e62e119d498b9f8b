"""Requests that a replica has passed on to its parent and that are not answered yet. No I/O; the caller passes the clock in.

Lost ones need no care: the client asks again, and its newer request takes the place of the older one.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import count

UNDER_WAY_SECONDS = 30.0
"""Twice the longest silence after which a client asks again (10 s, jittered to 15 s): nobody waits for an answer that comes later."""
RING_SECONDS = 0.25
"""A client asks again after 0.5 s at the earliest, on whatever way: what comes back sooner from elsewhere has gone round in a ring."""
MAX_UNDER_WAY = 16_384
"""Four times the 4,000 actors the system is meant for, about 8 MB; the oldest goes first, and its client asks again."""


class RingError(RuntimeError):
    """The request was passed on from here a moment ago and has come back: the tree has no root."""


@dataclass(frozen=True, slots=True)
class _UnderWay:
    relay_id: int
    peer: bytes
    request_id: int | None
    passed_at: float


class RelayTable:
    """Whom each answer of the parent is for. ``now`` is any monotonic clock in seconds.

    There is one entry a holder, because a holder has one request under way.
    """

    def __init__(self, *, max_under_way: int = MAX_UNDER_WAY) -> None:
        self._max_under_way = max_under_way
        # Oldest first: every entry lives equally long.
        self._by_holder: OrderedDict[str, _UnderWay] = OrderedDict()
        self._holders: dict[int, str] = {}
        self._relay_ids = count(1)

    def __len__(self) -> int:
        return len(self._by_holder)

    def pass_on(self, holder: str, peer: bytes, *, now: float, request_id: int | None = None) -> int:
        """Note that a message about ``holder`` from ``peer`` goes to the parent; returns the request id that it shall carry there.

        ``request_id``: the client's own; None where no answer is expected.

        Raises:
            RingError: it was here already; it must not be passed on.

        """
        self.expire(now)
        earlier = self._by_holder.get(holder)
        if earlier is not None and earlier.peer != peer and now - earlier.passed_at < RING_SECONDS:
            raise RingError("an index request came back to a parameter server that had passed it on")
        self._forget(holder)
        while len(self._by_holder) >= self._max_under_way:
            self._forget(next(iter(self._by_holder)))
        entry = _UnderWay(next(self._relay_ids), peer, request_id, now)
        self._by_holder[holder] = entry
        self._holders[entry.relay_id] = holder
        return entry.relay_id

    def answered(self, relay_id: int) -> tuple[bytes, int] | None:
        """Return (peer, its own request id) for the answer to ``relay_id``; None if nobody waits for it any more."""
        holder = self._holders.get(relay_id)
        if holder is None:
            return None
        entry = self._by_holder[holder]
        self._forget(holder)
        return None if entry.request_id is None else (entry.peer, entry.request_id)

    def expire(self, now: float) -> None:
        """Forget what nobody waits for any more."""
        while self._by_holder:
            holder, entry = next(iter(self._by_holder.items()))
            if now - entry.passed_at < UNDER_WAY_SECONDS:
                return
            self._forget(holder)

    def _forget(self, holder: str) -> None:
        entry = self._by_holder.pop(holder, None)
        if entry is not None:
            del self._holders[entry.relay_id]
