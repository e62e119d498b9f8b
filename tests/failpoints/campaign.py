"""Kills the processes of a whole run at failpoints, one after the other, and checks after each that nothing promised was lost."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from benchmarks.soak.monitor import TICK_SECONDS, Monitor
from benchmarks.soak.promises import Breach
from benchmarks.soak.proxied_run import ProxiedRun
from benchmarks.soak.recovery import Recovery
from benchmarks.soak.run import OWN_SETTINGS
from benchmarks.soak.soak import Plan, Soak
from tests.failpoints.child import KILLED, ORDER, RECORDED
from tests.failpoints.points import Row
from tests.failpoints.promises import BrokenPromiseError, Durable
from tests.patience import patient

EVERYTHING = "benchmarks/soak/everything.yaml"
SETTINGS = (
    *(word for pair in OWN_SETTINGS for word in pair),
    *("--bandit.snapshot_interval_seconds", "2", "--bandit.history_interval_seconds", "4", "--population.report_interval_seconds", "1"),
)
REACH_SECONDS = patient(60.0)
"""How long a point may take to be reached; checkpoints and snapshots are written every few seconds."""
RECOVERY_SECONDS = patient(240.0)
"""A learner that was killed loads torch again, on a machine that may be busy."""
ENVIRONMENTS = 16
DURABLE = "what was on disk is not lost"


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill."""

    point: str
    process: str
    seconds: float | None
    """From the kill to the recovery; None if it did not recover."""


@dataclass(slots=True)
class Story:
    """The kills so far."""

    kills: list[Kill] = field(default_factory=list)
    void: list[str] = field(default_factory=list)
    """Points that were not reached in time: no process was killed."""


class FailingRun:
    """A whole run whose processes can be killed at failpoints. Use as a context manager; entering waits until it trains."""

    def __init__(self, folder: Path, *words: str, file: str = EVERYTHING) -> None:
        self._folder = folder
        self.run = ProxiedRun(folder, [file, *SETTINGS, *words], module="tests.failpoints.supervised")
        self.monitor = Monitor(self.run, memory_interval_seconds=60.0)
        self.durable = Durable(self.run.run_dir)
        self.story = Story()

    def __enter__(self) -> FailingRun:
        plan = Plan(0.0, 0, RECOVERY_SECONDS, 0.0, ENVIRONMENTS)
        try:
            Soak(self.run, self.monitor, plan, Random(0), lambda _line, _keep: None).wait_until_it_trains()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.monitor.close()
        self.run.close()

    @property
    def breaches(self) -> list[Breach]:
        """The broken promises so far."""
        return [breach for _, breach in self.monitor.record.breaches]

    def recorded(self) -> set[tuple[str, str]]:
        """Return (service, point) of every point that a process reached."""
        lines = (line.split("\t") for line in (self._folder / RECORDED).read_text().splitlines())
        return {(name.rpartition("-")[0], point) for name, point in lines}

    def kill_at(self, row: Row, point: str) -> Kill | None:
        """Have a process killed at the point, and wait for the recovery; None if the point is not reached."""
        order = self._folder / ORDER
        prepared = order.with_suffix(".new")
        prepared.write_text(f"{point}\t1\t{row.service}")
        before = dict(self.monitor.last)
        prepared.replace(order)
        starting = set()
        if row.when == "start":
            # The point is only reached at a start, so the process is killed in any way first.
            starting = {next(name for name in self.run.children if name.startswith(row.service))}
            for name in starting:
                self.run.signal(name, signal.SIGKILL)
                self.monitor.expect_exit(name)
        process = self._wait_for_kill(order)
        if process is None:
            self.story.void.append(point)
            return None
        killed_at = self.monitor.seconds
        self.monitor.expect_exit(process)
        self._look()
        recovery = Recovery(before, self.monitor.newest, ENVIRONMENTS, self.run.children, {process, *starting})
        kill = Kill(point, process, self._recover(recovery, killed_at))
        self._look()
        self.story.kills.append(kill)
        return kill

    def finish(self) -> None:
        """End the run in order, and check what it leaves."""
        code = self.run.stop()
        if code != 0:
            self.monitor.broken(Breach("the run ends cleanly", f"exit code {code}: {self.run.output[-500:]}"))
        self.monitor.look_at_checkpoints()
        self.monitor.look_at_exits()
        self._look()

    def _wait_for_kill(self, order: Path) -> str | None:
        deadline = time.monotonic() + REACH_SECONDS
        while (killed := next(self._folder.glob(f"{KILLED}*"), None)) is None:
            if time.monotonic() > deadline:
                try:
                    order.unlink()
                except FileNotFoundError:
                    continue  # just now
                return None
            self.monitor.tick()
            time.sleep(TICK_SECONDS)
        killed.unlink()
        return killed.name.removeprefix(KILLED)

    def _recover(self, recovery: Recovery, killed_at: float) -> float | None:
        while missing := recovery.missing(self.monitor.tick()):
            if self.monitor.seconds - killed_at > RECOVERY_SECONDS:
                self.monitor.broken(Breach("recovers within the limit", "; ".join(missing)))
                return None
            time.sleep(TICK_SECONDS)
        return self.monitor.seconds - killed_at

    def _look(self) -> None:
        try:
            self.durable.look()
        except BrokenPromiseError as error:
            self.monitor.broken(Breach(DURABLE, str(error)))
