"""Leases places to actors, which a cluster starts without an ordinal. No I/O; the caller passes the time.

A place is an agent and an index among its actors. The index determines random seeds and, round-robin, tasks. So two live holders never
share a place, and the indices of each agent stay dense. Holders are distributed evenly over the live agents, again whenever agents end or
the number of holders changes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import count

from herd.protocols.weights.messages import Place

MAX_LEASES = 16_384
"""Four times the 4,000 actors for which the system is designed. If a client invents holders, this bounds the memory (0.5 kB each) and the
search for the lowest free index (about 1 ms)."""
SILENCE_SECONDS = 60.0
"""A learner sends a message every second. After a restart from its checkpoint it is back within 30 s on a slow machine. If it is silent
for longer, its actors would be idle, so they move to other agents. When it returns, actors are distributed evenly again."""


@dataclass(slots=True)
class _Agent:
    heard_at: float
    lineage: int = -1
    """The newest published lineage."""
    ended_lineage: int | None = None

    @property
    def has_ended(self) -> bool:
        return self.ended_lineage is not None and self.lineage <= self.ended_lineage


class Liveness:
    """Tracks which agents are live.

    An agent has ended when its learner reports this. It is live again when a greater lineage of it is published. An agent that was silent
    for ``SILENCE_SECONDS`` counts as ended until it is heard again. ``now`` is any monotonic clock in seconds.
    """

    def __init__(self, num_agents: int, *, now: float) -> None:
        self._agents = [_Agent(now) for _ in range(num_agents)]

    @property
    def num_agents(self) -> int:
        """Number of agents of the run."""
        return len(self._agents)

    def heard(self, agent: int, lineage: int, now: float) -> None:
        """Record a publication or a heartbeat of the learner of ``agent`` in ``lineage``."""
        known = self._agents[agent]
        known.heard_at = now
        known.lineage = max(known.lineage, lineage)

    def ended(self, agent: int, lineage: int, now: float) -> None:
        """Record that the run of ``agent`` has ended as of ``lineage``; ignored for a lineage older than the newest."""
        self.heard(agent, lineage, now)
        known = self._agents[agent]
        known.ended_lineage = max(lineage, known.ended_lineage or 0)

    def to_act_for(self, now: float) -> list[int]:
        """Return the live agents; if there are none, those that may return; if there are none either, all agents. Never empty."""
        coming_back = [number for number, agent in enumerate(self._agents) if not agent.has_ended]
        live = [number for number in coming_back if now - self._agents[number].heard_at < SILENCE_SECONDS]
        return live or coming_back or list(range(self.num_agents))


class NoIndexFreeError(RuntimeError):
    """Every index is leased."""


@dataclass(slots=True)
class _Lease:
    place: Place
    expires: float


class PlaceLeases:
    """Assigns each holder a place: the live agent with the fewest holders, and the lowest free index of that agent.

    ``now`` is any monotonic clock in seconds. A lease ends ``lease_seconds`` after its holder's last request, or when it is released.

    A holder keeps its place as long as it renews the lease, with these exceptions at a renewal:

    - If its agent is not live and another agent is, it moves to that agent.
    - If its agent has at least two holders more than another live agent, it moves if its index is not below an equal share. So the indices
      of both agents stay dense. This does not happen in the first ``lease_seconds``, while holders that survived a restart of this server
      claim their places again.
    - With ``stays_dense``, a holder whose index is not below its agent's number of holders moves to a lower free index. Indices determine
      tasks: once all n holders have renewed their leases, they have the indices 0..n-1.

    Each holder moves at most once per renewal, and moves end when no two live agents differ by more than one.
    """

    def __init__(
        self, liveness: Liveness, *, now: float, lease_seconds: float, max_leases: int = MAX_LEASES, stays_dense: bool = False
    ) -> None:
        self.lease_seconds = lease_seconds
        self._stays_dense = stays_dense
        self.num_moved = 0
        """Number of holders that were moved to another place."""
        self._liveness = liveness
        self._max_leases = max_leases
        self._evens_out_at = now + lease_seconds
        # Oldest request first. All leases have the same length, so those that expire are at the front.
        self._leases: OrderedDict[str, _Lease] = OrderedDict()
        self._taken: list[set[int]] = [set() for _ in range(liveness.num_agents)]
        """The indices of each agent that are leased."""

    def __len__(self) -> int:
        return len(self._leases)

    def num_holders(self, agent: int) -> int:
        """Return the number of holders of an agent."""
        return len(self._taken[agent])

    def holders(self) -> dict[str, Place]:
        """Return the places by holder."""
        return {holder: lease.place for holder, lease in self._leases.items()}

    def lease(self, holder: str, *, now: float, wanted: tuple[int, int] | None = None) -> Place:
        """Give ``holder`` its place, and renew the lease.

        ``wanted`` is the (agent, index) that the holder already has. It is granted if it is free and its agent is live, so that leases
        survive a restart of this server. A holder that gets another place than it wanted must move there.

        Raises:
            NoIndexFreeError: all ``max_leases`` are in use.

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
            self._taken[lease.place.agent].remove(lease.place.actor_index)
            lease.place = self._take(agents, None)
            self.num_moved += 1
        lease.expires = now + self.lease_seconds
        self._leases.move_to_end(holder)
        return lease.place

    def release(self, holder: str) -> bool:
        """Return the holder's index to the pool at once; False if it has none."""
        lease = self._leases.pop(holder, None)
        if lease is None:
            return False
        self._taken[lease.place.agent].remove(lease.place.actor_index)
        return True

    def expire(self, now: float) -> int:
        """Return the indices of silent holders to the pool; returns their number."""
        expired = 0
        while self._leases:
            holder, lease = next(iter(self._leases.items()))
            if lease.expires > now:
                break
            self.release(holder)
            expired += 1
        return expired

    def _take(self, agents: list[int], wanted: tuple[int, int] | None) -> Place:
        if wanted is not None and wanted[0] in agents and 0 <= wanted[1] < self._max_leases and wanted[1] not in self._taken[wanted[0]]:
            place = Place(*wanted)
        else:
            agent = min(agents, key=self.num_holders)
            place = Place(agent, next(index for index in count() if index not in self._taken[agent]))
        self._taken[place.agent].add(place.actor_index)
        return place

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
        # An agent with more holders than that has an index that is not below it.
        return place.actor_index >= sum(numbers) // len(numbers)
