"""Time, processes and faults. Everything that happens is an event in one queue, and every choice comes from the seed."""

from __future__ import annotations

import errno
import hashlib
import heapq
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulation.disk import Disk, Killed
from tests.simulation.faults import FAULTS
from tests.simulation.wire import Context, Network

TICK_SECONDS = 1.0
"""Longest sleep of a process."""
MAX_EVENTS = 60_000
"""A world with more of them is busy with itself."""


class Violation(BaseException):
    """Something that must always hold does not. No Exception, because servers survive those that a message causes."""


class EndedItself(Exception):  # noqa: N818  named after what happened
    """A process cannot begin and says so; the supervisor starts it again."""


class Null:
    """Stands in for meters, telemetry and logs: whatever is called does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


NULL: Any = Null()


@dataclass(frozen=True, slots=True)
class Fault:
    at: float
    kind: str
    """One of `FAULTS`."""
    salt: int
    """Seed of the choices in it, so that other faults can be left out without changing this one."""


@dataclass(frozen=True)
class Plan:
    """What a seed decides before the world begins."""

    seed: int
    num_agents: int
    num_shards: int
    num_environments: int
    max_policy_lag: int | None
    publish_interval: int
    whole_episodes: bool
    late_seconds: float
    """When the last actor comes."""
    delay_seconds: float
    """Mean time of a message on the wire."""
    faults: tuple[Fault, ...]
    fault_seconds: float

    @classmethod
    def of(cls, seed: int, only: frozenset[int] | None = None) -> Plan:
        """Return the plan of a seed; ``only``: the numbers of the faults that happen."""
        random = Random(f"plan {seed}")
        num_agents, num_shards = random.choice([(1, 2), (1, 2), (2, 1), (2, 2)])
        seconds = random.choice([6.0, 8.0, 10.0, 10.0, 15.0, 15.0, 20.0, 30.0, 80.0])
        kinds = random.sample(list(FAULTS), random.randint(0, 6)) + random.choice([[], ["break_connections"]])
        count = random.randint(1, 16) if kinds else 0
        faults = sorted((random.uniform(2.0, seconds), random.choice(kinds), random.getrandbits(32)) for _ in range(count))
        return cls(
            seed=seed,
            num_agents=num_agents,
            num_shards=num_shards,
            num_environments=random.choice([1, 1, 2]),
            max_policy_lag=random.choice([None, None, 4]),
            publish_interval=random.choice([1, 1, 2]),
            whole_episodes=random.random() < 0.5,
            late_seconds=random.choice([0.0, random.uniform(0.0, seconds)]),
            delay_seconds=random.choice([0.01, 0.05, 0.3]),
            faults=tuple(Fault(*fault) for number, fault in enumerate(faults) if only is None or number in only),
            fault_seconds=seconds,
        )


class Process:
    """A process that may be killed, paused and started again. Subclasses say what it does."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.context: Any = Context(self)
        self.is_alive = False
        self.paused_until = 0.0
        self.skew = 0.0
        """Seconds by which its monotonic clock is ahead of the world's."""
        self.started_at = 0.0
        self.disturbed_at = -1e9
        """When its clock last disagreed with the world's: after a jump, a pause or a start."""
        self.num_starts = 0
        self._wakes_at = float("inf")
        world.processes.append(self)

    @property
    def folder(self) -> str:
        """Where its files are; they share its power supply."""
        return f"/run/{self.name}"

    @property
    def is_running(self) -> bool:
        return self.is_alive and self.paused_until <= self.world.now

    def clock(self) -> float:
        return self.world.now + self.skew

    def start(self) -> None:
        self.is_alive, self.num_starts, self.started_at = True, self.num_starts + 1, self.world.now
        self.disturbed_at = self.world.now
        self.paused_until = 0.0
        self.skew = self.world.random.uniform(0.0, 1000.0)
        self._wakes_at = float("inf")
        self.world.note("start", self.name)
        if self.world.step(self, self.boot):
            self.world.wake(self)

    def end(self) -> None:
        """End at once, and be started again by the supervisor."""
        self.is_alive = False
        self.world.network.drop(self)
        self.ended()
        self.restart()

    def restart(self) -> None:
        world = self.world
        world.at(world.now + world.random.choice([0.2, 1.0, 8.0]), lambda: None if self.is_alive else self.start())

    def boot(self) -> None:
        raise NotImplementedError

    def turn(self) -> None:
        """Do all that is possible now, without waiting."""
        raise NotImplementedError

    def ended(self) -> None:
        """Forget what was in memory."""

    def leave(self) -> None:
        """What it does after SIGTERM."""


@dataclass
class World:
    """One history."""

    plan: Plan
    now: float = 0.0
    num_events: int = 0
    marks: Counter[str] = field(default_factory=Counter)
    processes: list[Process] = field(default_factory=list)
    running: Process | None = None
    checks: list[Callable[[Process], None]] = field(default_factory=list)
    """Called after each step of a process."""
    unwritten_lineages: dict[int, int] = field(default_factory=dict)
    """By agent, the newest lineage from the clock of a learner that started on a full disk, until a greater one is on disk."""

    def __post_init__(self) -> None:
        self.random = Random(self.plan.seed)
        self.network = Network(self)
        self.disk = Disk(self._before_write, self.random)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._num_queued = 0
        self._history = hashlib.blake2b(digest_size=8)
        self.fuses: dict[Process, int] = {}
        self.full_until = 0.0
        self.trace: Callable[[str], None] | None = None

    @property
    def digest(self) -> str:
        """Equal for equal histories."""
        return self._history.hexdigest()

    def note(self, *facts: object) -> None:
        line = f"{self.now:.6f} {' '.join(map(str, facts))}"
        self._history.update(line.encode())
        if self.trace is not None:
            self.trace(line)

    def sometimes(self, mark: str, happened: bool = True) -> None:
        """Note that something rare was reached; over many seeds everything must be."""
        if happened:
            self.marks[mark] += 1

    def at(self, when: float, action: Callable[[], None]) -> None:
        self._num_queued += 1
        heapq.heappush(self._queue, (when, self._num_queued, action))

    def wake(self, process: Process, within: float | None = None) -> None:
        """Let a process have a turn soon."""
        when = max(self.now + (self.random.uniform(0.002, 0.06) if within is None else within), process.paused_until)
        if process.is_alive and when < process._wakes_at:
            process._wakes_at = when
            generation = process.num_starts
            self.at(when, lambda: self._turn(process, generation, when))

    def step(self, process: Process, action: Callable[[], None]) -> bool:
        """Let a process do something; return whether it survives."""
        self.running = process
        try:
            action()
        except (Killed, EndedItself) as reason:
            self.sometimes("killed in the middle of a write" if isinstance(reason, Killed) else "a process could not begin")
            process.end()
            return False
        finally:
            self.running = None
        for check in self.checks:
            check(process)
        return True

    def run_until(self, until: float, is_done: Callable[[], bool] = lambda: False) -> bool:
        """Let events happen; return whether ``is_done`` became true."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, action = heapq.heappop(self._queue)
            self.num_events += 1
            if self.num_events > MAX_EVENTS:
                raise Violation(f"more than {MAX_EVENTS} events in {self.now:.0f} s")
            action()
            if is_done():
                return True
        self.now = max(self.now, until)
        return is_done()

    def _turn(self, process: Process, generation: int, when: float) -> None:
        if not process.is_alive or process.num_starts != generation or process._wakes_at != when:
            return
        process._wakes_at = float("inf")
        if process.paused_until > self.now:
            self.wake(process)
            return
        if self.step(process, process.turn):
            self.wake(process, TICK_SECONDS * self.random.uniform(0.8, 1.0))

    # Faults

    def schedule(self, fault: Fault) -> None:
        self.at(fault.at, lambda: self._inject(fault))

    def heal(self) -> None:
        """End all faults; whatever is down comes back by itself."""
        self.fuses.clear()
        self.full_until = 0.0
        self.network.cut_off.clear()
        self.network.on_next_message.clear()
        self.network.flaky_until = 0.0
        self.network.delay_seconds = self.plan.delay_seconds
        for process in self.processes:
            if process.paused_until > self.now:
                process.paused_until = self.now
                process._wakes_at = float("inf")
                self.wake(process)

    def _inject(self, fault: Fault) -> None:
        random = Random(fault.salt)
        alive = [process for process in self.processes if process.is_alive]
        if alive:
            process = random.choice(alive)
            self.note("fault", fault.kind, process.name)
            FAULTS[fault.kind](self, process, random)

    def _before_write(self, what: str, path: str) -> None:
        process = self.running
        self.note(what, path)
        if process in self.fuses:
            self.fuses[process] -= 1
            if self.fuses[process] <= 0:
                del self.fuses[process]
                raise Killed
        if self.full_until > self.now and what in ("write", "link"):
            self.sometimes("the disk was full")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
