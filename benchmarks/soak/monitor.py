"""Everything that is seen during a soak, gathered and checked as it comes. One thread; ``tick`` takes milliseconds."""

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
"""Between looks: how exactly recovery times are known."""
MOST_BREACHES = 100
"""A run that breaks its promises breaks them all the time; the first ones tell why."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The learning curve by the soak's clock."""

    at: float
    env_frames: int
    mean_return: float | None


@dataclass(slots=True)
class Record:
    """What was gathered."""

    memory: dict[str, list[Sample]] = field(default_factory=dict)
    curve: list[CurvePoint] = field(default_factory=list)
    breaches: list[tuple[float, Breach]] = field(default_factory=list)
    num_breaches: int = 0


class Monitor:
    """Looks at one run; every observation goes through the promises."""

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
        """Newest reading of each process, of whenever it answered last."""

    @property
    def seconds(self) -> float:
        """Since the soak began."""
        return time.monotonic() - self._started

    def expect_exit(self, process: str) -> None:
        """A fault ends this process: the supervisor will see it end once."""
        self._caused[process] = self._caused.get(process, 0) + 1

    def broken(self, breach: Breach) -> None:
        """Note a broken promise."""
        self.record.num_breaches += 1
        if len(self.record.breaches) < MOST_BREACHES:
            self.record.breaches.append((self.seconds, breach))

    def tick(self, asleep: Collection[str] = ()) -> Observation:
        """Look at everything once; ``asleep``: processes that are stopped and cannot answer.

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
        """What parameter servers give to someone who has nothing."""
        for served in self._onlookers.look():
            self._note(self.versions[served.agent].served(served.server, served.version, served.contents))

    def look_at_checkpoints(self) -> None:
        """Every checkpoint is a consistent snapshot of the ledger."""
        for ledger, checkpoints in zip(self.ledgers, self._checkpoints, strict=True):
            for state in checkpoints.new_states():
                self._note(ledger.checkpoint(state))

    def look_at_reports(self, reports: list[dict[str, Any]]) -> None:
        """The last snapshot of all, of each agent that left one."""
        for report in reports:
            self._note(self.ledgers[0].snapshot(report["accounting"]))

    @property
    def newest(self) -> list[Version]:
        """The newest version known anywhere, by agent."""
        return [watch.newest for watch in self.versions]

    @property
    def num_snapshots(self) -> int:
        """Of ledgers, that were looked at."""
        return sum(ledger.num_snapshots for ledger in self.ledgers)

    def look_at_exits(self) -> None:
        """Nobody ended whom no fault ended."""
        self._note(unexpected_exits(self._run.exit_counts(), self._caused))

    def close(self) -> None:
        """Close what was opened."""
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
