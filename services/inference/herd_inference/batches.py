"""Decides which requests form a batch, and when it starts. No I/O, no torch."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herd_inference.sessions import Request, Session


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
