"""When a run has recovered from a fault. No I/O: two observations in, what is still missing out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from benchmarks.soak.observation import Observation, Reading
    from benchmarks.soak.promises import Version

_UPDATES = 2
"""The first may come from unrolls that waited all the while; the second needs actors too, or soon will."""
_MESSAGES = 2
"""The first may have been under way when the fault came; the second needed credit from a living learner."""

_HOLDERS = {"actor", "learner", "paramserver"}
"""Services that hold weights; of any other it is enough that it answers."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What must be seen after a fault, measured against what was last known before it was over.

    Training goes on: every learner makes new updates and publishes them beyond every version known. Every parameter server serves such a
    version. Every actor holds such a version, sends unrolls and has them acknowledged. Whoever was killed is another process.
    """

    before: Mapping[str, Reading]
    """By process: its last reading."""
    newest: Sequence[Version]
    """The newest version known anywhere, by agent."""
    unrolls_per_message: int
    children: Collection[str]
    killed: Collection[str] = field(default=())

    def missing(self, now: Observation) -> list[str]:
        """What is not there yet, in words; empty: recovered."""
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
