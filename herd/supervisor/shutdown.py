"""In which order a run's processes are stopped. No processes, no clock.

The learner goes first and gets time for its checkpoint while actors still feed it; then everything else drains. What does not
end within its grace is killed.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

Signals = tuple[tuple[str, signal.Signals], ...]
"""(child's name, signal) to send now."""


class Phase(Enum):
    """Where the shutdown stands."""

    RUNNING = auto()
    LEARNER = auto()
    """The learner was asked to stop and is writing its checkpoint."""
    OTHERS = auto()
    """The learner is gone; the rest was asked to stop."""
    KILLING = auto()
    """Everything that lives was killed."""
    DONE = auto()


@dataclass(frozen=True, slots=True)
class Grace:
    """How long children may take, in seconds."""

    learner_seconds: float = 60.0
    """The update under way (seconds with a deep network on one core) and a checkpoint on a slow disk."""
    others_seconds: float = 10.0
    """An actor finishes an environment step; its unsent unrolls are worth nothing once the learner is gone."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """State of the shutdown; every method returns the next state and the signals to send."""

    grace: Grace
    learners: tuple[str, ...]
    """Names of the learner's children: its shards, which stop together."""
    phase: Phase = Phase.RUNNING
    deadline: float = float("inf")
    """When patience with the present phase ends, on the caller's clock."""
    killed: bool = False
    """The present phase's laggards were killed already."""

    def request(self, now: float, alive: Collection[str]) -> tuple[Shutdown, Signals]:
        """Start: a stop condition was reached, the user or the platform asked, or the run cannot go on. Later calls change nothing."""
        if self.phase is not Phase.RUNNING:
            return self, ()
        if learners := self._learners(alive):
            started = replace(self, phase=Phase.LEARNER, deadline=now + self.grace.learner_seconds)
            return started, _all(learners, signal.SIGTERM)
        return self._others(now, alive)

    def hurry(self, alive: Collection[str]) -> tuple[Shutdown, Signals]:
        """Kill everything: the user asked a second time."""
        return replace(self, phase=Phase.KILLING if alive else Phase.DONE), _all(alive, signal.SIGKILL)

    def advance(self, now: float, alive: Collection[str]) -> tuple[Shutdown, Signals]:
        """Look at the clock and at who still lives."""
        if self.phase in {Phase.RUNNING, Phase.DONE}:
            return self, ()
        if not alive:
            return replace(self, phase=Phase.DONE), ()
        if self.phase is Phase.LEARNER and not self._learners(alive):
            return self._others(now, alive)
        if self.phase is not Phase.KILLING and now >= self.deadline and not self.killed:
            late = self._learners(alive) if self.phase is Phase.LEARNER else alive
            return replace(self, killed=True), _all(late, signal.SIGKILL)
        return self, ()

    def _learners(self, alive: Collection[str]) -> list[str]:
        return [name for name in self.learners if name in alive]

    def _others(self, now: float, alive: Collection[str]) -> tuple[Shutdown, Signals]:
        if not alive:
            return replace(self, phase=Phase.DONE), ()
        started = replace(self, phase=Phase.OTHERS, deadline=now + self.grace.others_seconds, killed=False)
        return started, _all(alive, signal.SIGTERM)


def _all(names: Collection[str], number: signal.Signals) -> Signals:
    return tuple((name, number) for name in sorted(names))
