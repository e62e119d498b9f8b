"""Leased actor indices, for replicas that a cluster starts without an ordinal. No I/O; the caller passes the clock in.

An index seeds environments and deals tasks round-robin, so two living holders never share one and the numbers stay dense.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass

# 25 times the 4,000 actors the system is meant for; bounds memory against a client that invents holders (0.5 kB each, 50 MB).
MAX_LEASES = 100_000


class NoIndexFreeError(RuntimeError):
    """Every index is leased."""


@dataclass(slots=True)
class _Lease:
    index: int
    expires: float


class IndexLeases:
    """Deals the lowest free index to each holder.

    ``now`` is any monotonic clock in seconds. A lease ends ``lease_seconds`` after its holder's last request, or at its release.
    """

    def __init__(self, *, lease_seconds: float, max_leases: int = MAX_LEASES) -> None:
        self.lease_seconds = lease_seconds
        self._max_leases = max_leases
        # Oldest request first: every lease runs equally long, so the ones to expire are at the front.
        self._leases: OrderedDict[str, _Lease] = OrderedDict()
        self._taken: set[int] = set()
        # The lowest free index is the least of those that came back, or else the first that nobody ever had. A stranger who leases
        # and releases must not make anybody search.
        self._returned: list[int] = []  # a heap; may hold some that were taken by name since
        self._in_returned: set[int] = set()
        self._first_unused = 0

    def __len__(self) -> int:
        return len(self._leases)

    def holders(self) -> dict[str, int]:
        """Index by holder."""
        return {holder: lease.index for holder, lease in self._leases.items()}

    def lease(self, holder: str, *, now: float, wanted: int | None = None) -> int:
        """Give ``holder`` its index, the same one as long as its lease lives, and renew the lease.

        ``wanted`` is the index that the holder acts under already: granted if free, so that leases survive a restart of this
        server. A holder that is answered another index than it wanted has lost the old one to someone else.

        Raises:
            NoIndexFreeError: all ``max_leases`` are out.

        """
        self.expire(now)
        lease = self._leases.get(holder)
        if lease is None:
            if len(self._leases) >= self._max_leases:
                raise NoIndexFreeError(f"all {self._max_leases} actor indices are leased")
            lease = _Lease(self._take(wanted), now)
            self._leases[holder] = lease
        lease.expires = now + self.lease_seconds
        self._leases.move_to_end(holder)
        return lease.index

    def release(self, holder: str) -> bool:
        """Return the holder's index to the pool at once; False if it held none."""
        lease = self._leases.pop(holder, None)
        if lease is None:
            return False
        self._taken.remove(lease.index)
        if lease.index < self._first_unused and lease.index not in self._in_returned:
            heapq.heappush(self._returned, lease.index)
            self._in_returned.add(lease.index)
        return True

    def expire(self, now: float) -> int:
        """Return the indices of silent holders to the pool; how many."""
        expired = 0
        while self._leases:
            holder, lease = next(iter(self._leases.items()))
            if lease.expires > now:
                break
            self.release(holder)
            expired += 1
        return expired

    def _take(self, wanted: int | None) -> int:
        is_free = wanted is not None and 0 <= wanted < self._max_leases and wanted not in self._taken
        index = wanted if wanted is not None and is_free else self._lowest_free()
        self._taken.add(index)
        return index

    def _lowest_free(self) -> int:
        while self._returned:
            index = heapq.heappop(self._returned)
            self._in_returned.remove(index)
            if index not in self._taken:
                return index
        while self._first_unused in self._taken:
            self._first_unused += 1
        self._first_unused += 1
        return self._first_unused - 1
