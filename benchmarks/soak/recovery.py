"""Decides when a run has recovered from a fault, from two observations. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from benchmarks.soak.observation import Observation, Reading
    from benchmarks.soak.promises import Version

_UPDATES = 2
"""Number of new updates. The first may use unrolls that were already queued; the second needs actors, or soon will."""
_MESSAGES = 2
"""Number of new messages. The first may have been under way during the fault; the second needs credit from a live learner."""

_HOLDERS = {"actor", "learner", "paramserver"}
"""Services that hold weights; the others only need to answer."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The conditions of recovery, compared with the observation before the end of the fault.

    Every learner makes new updates and publishes a version beyond every known one. Every parameter server serves such a version. Every
    actor holds such a version, sends unrolls and gets acknowledgements. A killed process has been replaced by another one.
    """

    before: Mapping[str, Reading]
    """The last reading of each process."""
    newest: Sequence[Version]
    """The newest version known anywhere, by agent."""
    unrolls_per_message: int
    children: Collection[str]
    killed: Collection[str] = field(default=())

    def missing(self, now: Observation) -> list[str]:
        """Return what is still missing, in words; empty after recovery."""
        return [lack for name in self.children for lack in self._missing(name, now.processes.get(name))]

    def _missing(self, name: str, reading: Reading | None) -> list[str]:
        if reading is None:
            return [f"{name} does not answer"]
        before = self.before.get(name)
        if name in self.killed and before is not None and reading.pid == before.pid:
            return [f"{name} was not replaced"]
        lacks = []
        if name.rpartition("-")[0] in _HOLDERS:
            for agent, version in reading.versions.items():
                if version <= self.newest[agent]:
                    lacks.append(f"{name} holds {version} of agent {agent}, nothing beyond {self.newest[agent]}")
        done = reading.work - (before.work if before is not None and before.pid == reading.pid else 0.0)
        if name.startswith("learner") and done < _UPDATES:
            lacks.append(f"{name} made {done:g} updates")
        if name.startswith("actor"):
            if done < _MESSAGES * self.unrolls_per_message:
                lacks.append(f"{name} sent {done:g} unrolls")
            if reading.unacknowledged > _MESSAGES * self.unrolls_per_message:
                lacks.append(f"{name} waits for the acknowledgement of {reading.unacknowledged:g} unrolls")
        return lacks
