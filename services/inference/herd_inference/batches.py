"""Which requests are acted on together, and when. No I/O, no torch."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herd_inference.sessions import Request, Session


class Batches:
    """Requests that wait, by agent in the order of their arrival.

    A batch begins when requests of ``batch_size`` environments wait for one agent, or the oldest has waited ``deadline_seconds``; it
    holds the oldest requests, as many as fit into ``batch_size``, one at least. Bounded by one request of each session.
    """

    def __init__(self, num_agents: int, *, batch_size: int, deadline_seconds: float) -> None:
        self._batch_size = batch_size
        self._deadline_seconds = deadline_seconds
        self._waiting: list[OrderedDict[Session, Request]] = [OrderedDict() for _ in range(num_agents)]
        self._num_environments = [0] * num_agents
        self._has_weights = [False] * num_agents

    def __len__(self) -> int:
        """Requests that wait."""
        return sum(map(len, self._waiting))

    def may_act(self, agent: int) -> None:
        """Note that ``agent`` has a policy: until then its requests wait, whatever the deadline."""
        self._has_weights[agent] = True

    def add(self, request: Request) -> None:
        """Take a request in, in place of the one that its session waited for."""
        self.discard(request.session)
        self._waiting[request.session.agent][request.session] = request
        self._num_environments[request.session.agent] += request.session.num_environments

    def discard(self, session: Session) -> None:
        """Forget what ``session`` waits for, if anything."""
        if self._waiting[session.agent].pop(session, None) is not None:
            self._num_environments[session.agent] -= session.num_environments

    def next(self, now: float) -> list[Request]:
        """A batch of one agent that is due at ``now``, of those the one with the oldest request; empty if none is."""
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
        """When a batch is due; infinity where none waits."""
        return self._first_due()[1]

    def _first_due(self) -> tuple[int, float]:
        """Which agent's batch is due first, and when."""
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
