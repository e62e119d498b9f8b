"""Collects and checks all observations of a soak. One thread; ``tick`` takes milliseconds."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.soak.memory import Sample
from benchmarks.soak.observation import Checkpoints, Observation, Onlookers, Reading, curve_point, observe, residents
from benchmarks.soak.promises import Breach, LedgerWatch, VersionWatch, unexpected_exits

if TYPE_CHECKING:
    from collections.abc import Collection

    from benchmarks.soak.promises import Version
    from benchmarks.soak.proxied_run import ProxiedRun

TICK_SECONDS = 0.25
"""Interval of observations: the accuracy of recovery times."""
MAX_BREACHES = 100
"""Maximum number of recorded breaches: a broken run breaks promises all the time, and the first ones show the reason."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point of the learning curve, by the soak's clock."""

    at: float
    env_frames: int
    mean_return: float | None


@dataclass(slots=True)
class Record:
    """All recorded observations."""

    memory: dict[str, list[Sample]] = field(default_factory=dict)
    curve: list[CurvePoint] = field(default_factory=list)
    breaches: list[tuple[float, Breach]] = field(default_factory=list)
    num_breaches: int = 0


class Monitor:
    """Observes one run, and passes every observation through the promises."""

    def __init__(self, run: ProxiedRun, *, memory_interval_seconds: float) -> None:
        self._run = run
        self._onlookers = Onlookers(run)
        self._checkpoints = [Checkpoints(directory) for directory in run.agent_directories]
        self._memory_interval_seconds = memory_interval_seconds
        self._memory_at = 0.0
        self._started = time.monotonic()
        self._caused: dict[str, int] = {}
        self.versions = [VersionWatch() for _ in run.agent_directories]
        """By agent."""
        self.ledgers = [LedgerWatch() for _ in run.agent_directories]
        self.record = Record()
        self.last: dict[str, Reading] = {}
        """The newest reading of each process, whenever it answered last."""

    @property
    def seconds(self) -> float:
        """Seconds since the soak began."""
        return time.monotonic() - self._started

    def expect_exit(self, process: str) -> None:
        """Expect that a fault ends this process, so that the supervisor reports its end once."""
        self._caused[process] = self._caused.get(process, 0) + 1

    def broken(self, breach: Breach) -> None:
        """Record a broken promise."""
        self.record.num_breaches += 1
        if len(self.record.breaches) < MAX_BREACHES:
            self.record.breaches.append((self.seconds, breach))

    def tick(self, asleep: Collection[str] = ()) -> Observation:
        """Observe everything once; ``asleep``: stopped processes, which cannot answer.

        Raises:
            RunEndedError: the run ended by itself.
        """
        self._run.check_running()
        seen = observe(self._run, asleep=asleep)
        for name, reading in seen.processes.items():
            for agent, version in reading.versions.items():
                self._note(self.versions[agent].held(name, reading.pid, version))
        self.last.update(seen.processes)
        self.look_at_weights()
        self.look_at_checkpoints()
        self._look_at_memory()
        self._look_at_curve()
        return seen

    def look_at_weights(self) -> None:
        """Check what parameter servers answer to a client without weights."""
        for served in self._onlookers.look():
            self._note(self.versions[served.agent].served(served.server, served.version, served.contents))

    def look_at_checkpoints(self) -> None:
        """Check that every checkpoint is a consistent snapshot of the ledger."""
        for ledger, checkpoints in zip(self.ledgers, self._checkpoints, strict=True):
            for state in checkpoints.new_states():
                self._note(ledger.checkpoint(state))

    def look_at_reports(self, reports: list[dict[str, Any]]) -> None:
        """Check the final snapshot of each agent that left one."""
        for report in reports:
            self._note(self.ledgers[0].snapshot(report["accounting"]))

    @property
    def newest(self) -> list[Version]:
        """The newest version known anywhere, by agent."""
        return [watch.newest for watch in self.versions]

    @property
    def num_snapshots(self) -> int:
        """Number of ledger snapshots that were checked."""
        return sum(ledger.num_snapshots for ledger in self.ledgers)

    def look_at_exits(self) -> None:
        """Check that no process ended without a fault."""
        self._note(unexpected_exits(self._run.exit_counts(), self._caused))

    def close(self) -> None:
        """Close all connections."""
        self._onlookers.close()

    def _note(self, breaches: list[Breach]) -> None:
        for breach in breaches:
            self.broken(breach)

    def _look_at_memory(self) -> None:
        now = self.seconds
        if now < self._memory_at:
            return
        self._memory_at = now + self._memory_interval_seconds
        for resident in residents(self._run):
            sample = Sample(now, resident.pid, resident.age_seconds, resident.bytes)
            self.record.memory.setdefault(resident.process, []).append(sample)

    def _look_at_curve(self) -> None:
        point = curve_point(self._run)
        if not point:
            return
        newest = CurvePoint(self.seconds, point["env_frames"], point["episode_return_mean_100"])
        curve = self.record.curve
        if not curve or newest.env_frames != curve[-1].env_frames:
            curve.append(newest)
