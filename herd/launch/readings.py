"""Reads the state of the children: their metrics and the newest point of the learning curve."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from herd.files import FileError
from herd.protocols import catalogue
from herd.protocols.unrolls import metrics as unroll_metrics
from herd.run.journals import newest_point
from herd.run.paths import PROCESSES
from herd.run.processes import read_announcement
from herd.service.host import OtherPrograms
from herd.telemetry import metrics
from herd.telemetry import training as training_metrics
from herd.telemetry.scrape import Samples, ScrapeError, scrape, total

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_INTERVAL_SECONDS = 1.0
"""Seconds between scrapes. A scrape of `_READ` costs a child about a millisecond, a thousandth of one core."""
_MACHINE_SECONDS = 10.0
"""Seconds over which the load by other programs is averaged. Reading it takes some milliseconds, as it looks at every process."""
_TIMEOUT_SECONDS = 0.5
"""Timeout. Localhost answers in milliseconds, but a learner in a long operation may hold the interpreter for tenths of a second."""

_WORK = {str(service): metric.name for service, metric in catalogue.WORK_DONE.items()}
_READ = (
    *catalogue.WORK_DONE.values(),
    unroll_metrics.ACTOR_BLOCKED,
    unroll_metrics.ACTOR_ENVIRONMENTS_REPLACED,
    unroll_metrics.ACTOR_UNROLLS_REJECTED,
    unroll_metrics.ACTOR_WEIGHTS_WAIT,
    training_metrics.CHECKPOINT_FAILURES,
    training_metrics.EPISODES,
    training_metrics.EPISODE_RETURN,
    metrics.HEARTBEAT_AGE,
    training_metrics.HUMAN_NORMALISED,
    training_metrics.LEARNER_ENV_FRAMES,
    training_metrics.LEARNER_STARVED,
    unroll_metrics.POLICY_LAG,
    metrics.PROCESS_CPU,
    metrics.PROCESS_RESIDENT_MEMORY,
    unroll_metrics.QUEUE_CAPACITY,
    unroll_metrics.QUEUE_DEPTH,
    training_metrics.TASK_ENV_FRAMES,
    metrics.WEIGHTS_UPDATES,
    training_metrics.WRITE_FAILURES,
)
"""What restarts and views need. The 3,200 series of a bandit with 57 tasks would take 20 ms of its only thread at every scrape."""


@dataclass(frozen=True, slots=True)
class ChildState:
    """What the supervisor knows about a child."""

    name: str
    state: str
    """running, restarting, stopping, stopped, given up; or ended, for a shard whose agent's run is over."""
    pid: int | None
    restarts: int


@dataclass(frozen=True, slots=True)
class Readings:
    """Everything known at one moment."""

    at: float = 0.0
    """time.monotonic() in seconds."""
    samples: Mapping[str, Samples] = field(default_factory=dict)
    """Samples by name of the child, only of children that answered."""
    point: Mapping[str, Any] = field(default_factory=dict)
    """Newest line of the first agent's metrics.jsonl; empty before the first line."""
    other_points: tuple[Mapping[str, Any], ...] = ()
    """Newest lines of the other agents; empty before anything was read."""
    other_programs: str = ""
    """A line about other programs that keep the machine busy; empty if they do not."""
    pids: Mapping[str, int] = field(default_factory=dict)
    """Process id by name, of the children that answered: a child may have been replaced since."""

    def of_agent(self, agent: int) -> Readings:
        """Return the readings with the point of another agent."""
        points = (self.point, *self.other_points)
        return replace(self, point=points[agent] if agent < len(points) else {})


def work_done(child: str, samples: Samples) -> float:
    """Return how much work the child has done, in its own unit. Only used to see whether it grows."""
    return total(samples, _WORK.get(child.rpartition("-")[0], ""))


def trains(readings: Readings, child: str) -> bool:
    """Return whether a learner has trained since its process started."""
    return total(readings.samples.get(child, {}), training_metrics.LEARNER_ENV_FRAMES.name) > 0


def read(
    run_dir: Path,
    pids: Mapping[str, int],
    scrape_endpoint: Callable[[str, float, Sequence[metrics.Metric]], Samples] = scrape,
    agent_directories: Sequence[Path] | None = None,
) -> Readings:
    """Scrape every child in ``pids`` that announced itself with this process id, and read the newest point of each agent.

    ``agent_directories``: directories of the agents; None: only ``run_dir``, for a single agent.
    """
    samples = {}
    for name, pid in pids.items():
        url = metrics_url(run_dir, name, pid)
        if url is None:
            continue
        try:
            samples[name] = scrape_endpoint(url, _TIMEOUT_SECONDS, _READ)
        except ScrapeError:
            continue  # it is starting, busy or gone: the view shows the other children
    point, *others = map(_newest_point, agent_directories or [run_dir])
    return Readings(time.monotonic(), samples, point, tuple(others), pids={name: pids[name] for name in samples})


def _newest_point(directory: Path) -> dict[str, Any]:
    try:
        return newest_point(directory)
    except FileError:  # the view goes on without it, and `herd status` tells why
        return {}


def metrics_url(run_dir: Path, name: str, pid: int | None = None) -> str | None:
    """Return the address of a child's metrics; None before its announcement, or if another process than ``pid`` made it."""
    try:
        announced, address = read_announcement(run_dir / PROCESSES / f"{name}.json")
    except (FileError, FileNotFoundError):
        return None
    return f"{address}/metrics" if pid in {None, announced} else None


class Watcher:
    """Reads in a separate thread, so that a hanging child never delays the supervisor's decisions."""

    def __init__(self, run_dir: Path, agent_directories: Sequence[Path] | None = None, interval_seconds: float = _INTERVAL_SECONDS) -> None:
        self._run_dir = run_dir
        self._agent_directories = agent_directories
        self._interval_seconds = interval_seconds
        self._pids: Mapping[str, int] = {}
        self.latest = Readings()
        """The newest readings."""
        self._work: dict[int, float] = {}
        """By process id, of the children that are watched."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._thread.start()

    def watch(self, pids: Mapping[str, int]) -> None:
        """Replace the set of children to read (name -> process id)."""
        self._pids = dict(pids)

    def most_work(self, pid: int) -> float:
        """Return the most work seen of a process that is watched, or that was watched until now; 0 if none."""
        return self._work.get(pid, 0.0)

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join(timeout=2 * _TIMEOUT_SECONDS)

    def _run(self) -> None:
        machine, line, read_at = OtherPrograms(), "", time.monotonic()
        while not self._closed.wait(self._interval_seconds):
            if time.monotonic() - read_at >= _MACHINE_SECONDS:
                line, read_at = machine.line(), time.monotonic()
            pids = self._pids
            latest = read(self._run_dir, pids, agent_directories=self._agent_directories)
            # By process, because a child may have been replaced while its answer was on the way.
            work = {pids[name]: work_done(name, samples) for name, samples in latest.samples.items()}
            self._work = {pid: max(self.most_work(pid), work.get(pid, 0.0)) for pid in pids.values()}
            self.latest = replace(latest, other_programs=line)
