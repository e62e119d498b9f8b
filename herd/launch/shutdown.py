"""The order in which the processes of a run are stopped. No processes, no clock.

The learner is stopped first, with time for its checkpoint while actors still send unrolls. Then all other processes are stopped. A process
that does not end within its grace period is killed.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

Signals = tuple[tuple[str, signal.Signals], ...]
"""Signals to send now, as (name of the child, signal)."""


class Phase(Enum):
    """The phase of the shutdown."""

    RUNNING = auto()
    LEARNER = auto()
    """The learner was asked to stop and is writing its checkpoint."""
    OTHERS = auto()
    """The learner has ended; the other processes were asked to stop."""
    KILLING = auto()
    """All remaining processes were killed."""
    DONE = auto()


@dataclass(frozen=True, slots=True)
class Grace:
    """Grace periods in seconds."""

    learner_seconds: float = 60.0
    """For the learner: the update under way (seconds with a deep network on one core) and a checkpoint on a slow disk."""
    others_seconds: float = 10.0
    """For other processes: an actor finishes an environment step. Its unsent unrolls are useless after the learner has ended."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The state of the shutdown. Every method returns the next state and the signals to send."""

    grace: Grace
    learners: tuple[str, ...]
    """Names of the learner's shards, which stop together."""
    phase: Phase = Phase.RUNNING
    deadline: float = float("inf")
    """Deadline of the present phase, on the caller's clock."""
    killed: bool = False
    """Whether the processes that exceeded the present phase were already killed."""

    def request(self, now: float, alive: Collection[str]) -> tuple[Shutdown, Signals]:
        """Start the shutdown: a stop condition was met, a stop was requested, or the run failed. Later calls have no effect."""
        if self.phase is not Phase.RUNNING:
            return self, ()
        if learners := self._learners(alive):
            started = replace(self, phase=Phase.LEARNER, deadline=now + self.grace.learner_seconds)
            return started, _all(learners, signal.SIGTERM)
        return self._others(now, alive)

    def hurry(self, alive: Collection[str]) -> tuple[Shutdown, Signals]:
        """Kill all processes, because the user asked a second time."""
        return replace(self, phase=Phase.KILLING if alive else Phase.DONE), _all(alive, signal.SIGKILL)

    def advance(self, now: float, alive: Collection[str]) -> tuple[Shutdown, Signals]:
        """Advance the shutdown, given the time and the living processes."""
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
