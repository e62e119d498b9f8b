"""Tracks which agents of the run still learn and need actors. No I/O; the caller passes the time."""

from __future__ import annotations

from dataclasses import dataclass

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
