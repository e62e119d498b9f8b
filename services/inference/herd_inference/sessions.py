"""The sessions of the service: a place for the state of each environment, the last answer of each client, and the batches of requests.

No I/O, no torch.

A session is one group of an actor's environments, identified by the name of its connection: (actor index, incarnation, group). Its
environments have consecutive places in the memory of states. If there are too few free places, the sessions that have been silent longest
are evicted, and their clients are asked to send the state again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from herd.rpc.serving import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.protocols.inference.rows import ActingRows
    from herd.transport import Peer

Span = tuple[int, int]
"""A range of places: the first one, and the one after the last."""


@dataclass(slots=True, eq=False)
class Session:
    """A group of environments."""

    peer: Peer
    agent: int
    places: Span
    last_id: int = 0
    """Number of the newest accepted request."""
    wants_state: bool = False
    """Whether that request wants the recurrent states in its answer."""
    waiting: Request | None = None
    """That request, until it is answered."""
    answer: Reply = field(default_factory=Reply)
    """Answer to that request, once there is one."""

    @property
    def num_environments(self) -> int:
        """Number of environments (E)."""
        first, end = self.places
        return end - first


@dataclass(slots=True, eq=False)
class Request:
    """A row of a session that waits for actions."""

    session: Session
    request_id: int
    rows: ActingRows
    has_state: bool
    wants_state: bool
    arrived_at: float
    """Time of arrival, in seconds of a monotonic clock."""

    @property
    def is_wanted(self) -> bool:
        """Whether its client still waits for it: the session has no newer request and was not evicted."""
        return self.session.waiting is self


class Places:
    """Allocates ranges of places 0..capacity-1, first fit."""

    def __init__(self, capacity: int) -> None:
        self._free: list[Span] = [(0, capacity)]

    def take(self, count: int) -> Span | None:
        """Return ``count`` consecutive places; None if there are none."""
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
    """All sessions, the one that has been silent longest first."""

    def __init__(self, capacity: int, on_end: Callable[[Session], None]) -> None:
        """``capacity``: number of environments. ``on_end`` is called with every session that ends."""
        self.num_environments = 0
        """Number of environments whose state is stored."""
        self.num_evicted = 0
        """Number of environments whose state was evicted."""
        self._on_end = on_end
        self._places = Places(capacity)
        self._sessions: OrderedDict[Peer, Session] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def heard(self, peer: Peer) -> Session | None:
        """Return the session of a client that has just sent a message; None if it has none."""
        session = self._sessions.get(peer)
        if session is not None:
            self._sessions.move_to_end(peer)
        return session

    def open(self, peer: Peer, agent: int, num_environments: int) -> Session:
        """Open a session, which replaces an earlier one of the client. The settings leave places for each request."""
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


class Batches:
    """Waiting requests, by agent in the order of arrival.

    A batch starts when requests with ``batch_size`` environments wait for one agent, or when the oldest one has waited
    ``deadline_seconds``. It contains the oldest requests, as many as fit into ``batch_size``, and at least one. Each session has at most
    one waiting request.
    """

    def __init__(self, num_agents: int, *, batch_size: int, deadline_seconds: float) -> None:
        self._batch_size = batch_size
        self._deadline_seconds = deadline_seconds
        self._waiting: list[OrderedDict[Session, Request]] = [OrderedDict() for _ in range(num_agents)]
        self._num_environments = [0] * num_agents
        self._has_weights = [False] * num_agents

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return sum(map(len, self._waiting))

    def may_act(self, agent: int) -> None:
        """Record that ``agent`` has a policy. Until then its requests wait, regardless of the deadline."""
        self._has_weights[agent] = True

    def add(self, request: Request) -> None:
        """Add a request; it replaces an earlier one of its session."""
        self.discard(request.session)
        self._waiting[request.session.agent][request.session] = request
        self._num_environments[request.session.agent] += request.session.num_environments

    def discard(self, session: Session) -> None:
        """Remove the request of ``session``, if any."""
        if self._waiting[session.agent].pop(session, None) is not None:
            self._num_environments[session.agent] -= session.num_environments

    def next(self, now: float) -> list[Request]:
        """Return the batch that is due at ``now``, the one with the oldest request if there are several; empty if none is due."""
        agent, due_at = self._first_due()
        if due_at > now:
            return []
        batch: list[Request] = []
        waiting, room = self._waiting[agent], self._batch_size
        while waiting and (not batch or next(iter(waiting)).num_environments <= room):
            session, request = waiting.popitem(last=False)
            self._num_environments[agent] -= session.num_environments
            room -= session.num_environments
            batch.append(request)
        return batch

    def due_at(self) -> float:
        """Return when a batch is due; infinity if no request waits."""
        return self._first_due()[1]

    def _first_due(self) -> tuple[int, float]:
        """Return the agent whose batch is due first, and when."""
        agent, first = 0, float("inf")
        for number, waiting in enumerate(self._waiting):
            if not waiting or not self._has_weights[number]:
                continue
            due_at = next(iter(waiting.values())).arrived_at
            if self._num_environments[number] < self._batch_size:
                due_at += self._deadline_seconds
            if due_at < first:
                agent, first = number, due_at
        return agent, first
