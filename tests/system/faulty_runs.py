"""A run of Catch whose connections lead through proxies, observed with the soak's own code; tests inject one chosen fault at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.soak.faults import Fault
from benchmarks.soak.monitor import Monitor
from benchmarks.soak.observation import Observation, Reading
from benchmarks.soak.proxied_run import ProxiedRun
from benchmarks.soak.run import OWN_SETTINGS
from benchmarks.soak.soak import Plan, Soak
from herd.telemetry.scrape import total
from tests.patience import patient
from tests.system.whole_runs import CATCH, SLOW, metrics, read_report, until

ENVIRONMENTS = 32
RECOVERY_SECONDS = patient(180.0)
"""Recovery limit in seconds, with a margin for a busy machine."""
MEGABYTE = 1 << 20


class FaultyRun:
    """The run as a context manager; ``finish`` ends the run cleanly and returns its report, or fails with the broken promises."""

    def __init__(self, folder: Path, *words: str) -> None:
        own = [word for pair in OWN_SETTINGS for word in pair]
        settings = ["--learner.threads", "1", "--learner.log_interval_seconds", "0.5", "--actor.environments", str(ENVIRONMENTS)]
        self.run = ProxiedRun(folder, [CATCH, *own, *SLOW, *settings, *words])
        try:
            self.monitor = Monitor(self.run, memory_interval_seconds=0.5)
        except BaseException:
            self.run.close()
            raise
        plan = Plan(0.0, 0, RECOVERY_SECONDS, 0.0, ENVIRONMENTS)
        self._soak = Soak(self.run, self.monitor, plan, Random(0), lambda _line, _keep: None)

    def __enter__(self) -> FaultyRun:
        try:
            self._soak.wait_until_it_trains()
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
    def actors(self) -> list[str]:
        return [name for name in self.run.children if name.startswith("actor")]

    def survive(self, *faults: Fault) -> float:
        """Inject the faults together and lift each after its time; returns the seconds until recovery. Promises are checked meanwhile."""
        survived = self._soak.survive(faults)
        assert survived is not None, f"nothing runs that could be hit by {faults}"
        assert survived.faults == faults
        assert survived.recovery_seconds is not None, (survived, self.run.output)
        self.assert_nothing_broken()
        return survived.recovery_seconds

    def look(self, asleep: Iterable[str] = ()) -> Observation:
        """Observe everything once, and check every promise that can be judged."""
        seen = self.monitor.tick(set(asleep))
        self.assert_nothing_broken()
        return seen

    def until(self, condition: Callable[[], bool], what: str, asleep: Iterable[str] = ()) -> None:
        """Observe until ``condition`` holds; ``reading`` gives the newest observation."""

        def holds() -> bool:
            self.look(asleep)
            return condition()

        until(holds, what)

    def reading(self, process: str) -> Reading:
        """The newest reading of a process."""
        return self.monitor.last[process]

    def metric(self, process: str, name: str, **labels: str) -> float:
        """A metric as its process reports it now; 0 while it does not answer."""
        return total(metrics(self.run.run_dir, process), name, **labels)

    def resident(self, process: str) -> int:
        """Resident bytes in the newest sample of the process's current incarnation. A process may train before it is first sampled."""

        def samples() -> list[int]:
            pid = self.reading(process).pid
            return [sample.bytes for sample in self.monitor.record.memory.get(process, []) if sample.pid == pid]

        self.until(lambda: bool(samples()), f"a sample of the memory of {process}")
        return samples()[-1]

    def assert_nothing_broken(self) -> None:
        assert self.monitor.record.num_breaches == 0, (self.monitor.record.breaches, self.run.output)

    def finish(self) -> dict[str, Any]:
        """End the run; returns its report, whose accounts are balanced."""
        assert self.run.stop() == 0, self.run.output
        self.monitor.look_at_checkpoints()
        self.monitor.look_at_exits()
        report = read_report(self.run.run_dir)
        self.monitor.look_at_reports([report])
        self.assert_nothing_broken()
        assert self.monitor.num_snapshots >= 2
        assert report["env_frames"] > 0
        return report
