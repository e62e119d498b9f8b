"""Leased places of actors, for replicas that a cluster starts without an ordinal. No I/O; the caller passes the clock in.

A place is an agent and an index among its actors. The index seeds environments and deals tasks round-robin, so two living holders never
share a place, and the indices of each agent stay dense. Holders are dealt to the live agents evenly, and dealt again as agents end and
holders come and go.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herd.wire.messages import Place

if TYPE_CHECKING:
    from herd_paramserver.liveness import Liveness

# 25 times the 4,000 actors the system is meant for; bounds memory against a client that invents holders (0.5 kB each, 50 MB).
MAX_LEASES = 100_000


class NoIndexFreeError(RuntimeError):
    """Every index is leased."""


class Indices:
    """Which indices of one agent are taken; finding the lowest free one takes no search.

    It is the least of those that came back, or else the first that nobody ever had. A stranger who leases and releases must not make
    anybody search.
    """

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._returned: list[int] = []  # a heap; may hold some that were taken by name since
        self._in_returned: set[int] = set()
        self._first_unused = 0

    def __len__(self) -> int:
        return len(self._taken)

    def __contains__(self, index: int) -> bool:
        return index in self._taken

    def take(self, wanted: int | None = None) -> int:
        """Take the index ``wanted`` where it is free, else the lowest that is."""
        index = wanted if wanted is not None and wanted not in self._taken else self._lowest_free()
        self._taken.add(index)
        return index

    def give_back(self, index: int) -> None:
        """Return a taken index."""
        self._taken.remove(index)
        if index < self._first_unused and index not in self._in_returned:
            heapq.heappush(self._returned, index)
            self._in_returned.add(index)

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


@dataclass(slots=True)
class _Lease:
    place: Place
    expires: float


class PlaceLeases:
    """Deals each holder a place: of the live agents the one with the fewest holders, and there the lowest free index.

    ``now`` is any monotonic clock in seconds. A lease ends ``lease_seconds`` after its holder's last request, or at its release.

    A holder keeps its place as long as it asks, with two exceptions, both at a renewal. Where its agent is not live and another one is,
    it moves there. Where its agent has two holders more than another live one, it moves if its index is not below an equal share: then
    both agents' indices stay dense. Nobody is moved for evenness in the first ``lease_seconds``, while holders that survived a restart of
    this server name their places again. So each holder moves at most once per renewal, and moving ends where no two live agents differ by
    more than one.

    With ``stays_dense`` there is a third exception: a holder whose index is not below its agent's number of holders moves to a lower one,
    which somebody has left. Indices decide which tasks are played: after every holder has renewed its lease, n of them have the indices
    0..n-1, whoever came and went before.
    """

    def __init__(
        self, liveness: Liveness, *, now: float, lease_seconds: float, max_leases: int = MAX_LEASES, stays_dense: bool = False
    ) -> None:
        self.lease_seconds = lease_seconds
        self._stays_dense = stays_dense
        self.num_moved = 0
        """Holders that were given another place than the one they had."""
        self._liveness = liveness
        self._max_leases = max_leases
        self._evens_out_at = now + lease_seconds
        # Oldest request first: every lease runs equally long, so the ones to expire are at the front.
        self._leases: OrderedDict[str, _Lease] = OrderedDict()
        self._indices = [Indices() for _ in range(liveness.num_agents)]

    def __len__(self) -> int:
        return len(self._leases)

    def num_holders(self, agent: int) -> int:
        """Of this agent."""
        return len(self._indices[agent])

    def holders(self) -> dict[str, Place]:
        """Place by holder."""
        return {holder: lease.place for holder, lease in self._leases.items()}

    def lease(self, holder: str, *, now: float, wanted: tuple[int, int] | None = None) -> Place:
        """Give ``holder`` its place, and renew the lease.

        ``wanted`` is the (agent, index) that the holder acts under already: granted if it is free and its agent live, so that leases
        survive a restart of this server. A holder that is answered another place than it wanted must move there.

        Raises:
            NoIndexFreeError: all ``max_leases`` are out.

        """
        self.expire(now)
        agents = self._liveness.to_act_for(now)
        lease = self._leases.get(holder)
        if lease is None:
            if len(self._leases) >= self._max_leases:
                raise NoIndexFreeError(f"all {self._max_leases} actor indices are leased")
            lease = _Lease(self._take(agents, wanted), now)
            self._leases[holder] = lease
            self.num_moved += wanted is not None and lease.place != wanted
        elif self._must_move(lease.place, agents, now):
            self._indices[lease.place.agent].give_back(lease.place.actor_index)
            lease.place = self._take(agents, None)
            self.num_moved += 1
        lease.expires = now + self.lease_seconds
        self._leases.move_to_end(holder)
        return lease.place

    def release(self, holder: str) -> bool:
        """Return the holder's index to the pool at once; False if it held none."""
        lease = self._leases.pop(holder, None)
        if lease is None:
            return False
        self._indices[lease.place.agent].give_back(lease.place.actor_index)
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

    def _take(self, agents: list[int], wanted: tuple[int, int] | None) -> Place:
        if wanted is not None and wanted[0] in agents and 0 <= wanted[1] < self._max_leases and wanted[1] not in self._indices[wanted[0]]:
            return Place(wanted[0], self._indices[wanted[0]].take(wanted[1]))
        agent = min(agents, key=self.num_holders)
        return Place(agent, self._indices[agent].take())

    def _must_move(self, place: Place, agents: list[int], now: float) -> bool:
        if place.agent not in agents:
            return True
        if now < self._evens_out_at:
            return False
        if self._stays_dense and place.actor_index >= self.num_holders(place.agent):
            return True
        numbers = [self.num_holders(agent) for agent in agents]
        if self.num_holders(place.agent) - min(numbers) <= 1:
            return False
        # Of an agent with more holders than that, some index is not below it.
        return place.actor_index >= sum(numbers) // len(numbers)
