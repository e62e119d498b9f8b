"""Which agents of the run still learn, and are worth acting for. No I/O; the caller passes the clock in."""

from __future__ import annotations

from dataclasses import dataclass

SILENCE_SECONDS = 60.0
"""A learner is heard every second. One that restarts from its checkpoint is back in 30 s on a slow machine; one away for longer leaves
its actors idle, and they are worth more elsewhere. They come back to it, evenly, when it does."""


@dataclass(slots=True)
class _Agent:
    heard_at: float
    lineage: int = -1
    """The newest one that was published."""
    ended_lineage: int | None = None

    @property
    def has_ended(self) -> bool:
        return self.ended_lineage is not None and self.lineage <= self.ended_lineage


class Liveness:
    """An agent is over when its learner said so, and may live again when a greater lineage of it is published.

    An agent of which nothing has been heard for ``SILENCE_SECONDS`` is taken for over until it is heard again. ``now`` is any monotonic
    clock in seconds.
    """

    def __init__(self, num_agents: int, *, now: float) -> None:
        self._agents = [_Agent(now) for _ in range(num_agents)]

    @property
    def num_agents(self) -> int:
        """Of the run."""
        return len(self._agents)

    def heard(self, agent: int, lineage: int, now: float) -> None:
        """The learner of ``agent`` published in ``lineage``, or says that it has."""
        known = self._agents[agent]
        known.heard_at = now
        known.lineage = max(known.lineage, lineage)

    def ended(self, agent: int, lineage: int, now: float) -> None:
        """The learner of ``agent`` says that its run is over as of ``lineage``; of an older lineage than the newest it changes nothing."""
        self.heard(agent, lineage, now)
        known = self._agents[agent]
        known.ended_lineage = max(lineage, known.ended_lineage or 0)

    def to_act_for(self, now: float) -> list[int]:
        """The live agents; where there is none, those that may still come back; where there are none of them, all. Never empty."""
        coming_back = [number for number, agent in enumerate(self._agents) if not agent.has_ended]
        live = [number for number in coming_back if now - self._agents[number].heard_at < SILENCE_SECONDS]
        return live or coming_back or list(range(self.num_agents))
