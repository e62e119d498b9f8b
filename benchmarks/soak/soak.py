"""The soak: waits for the run, then injects one fault after another and waits for recovery from each, until the time is over."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.soak.faults import Fault, draw, inject, is_over_at_once, kills, lift, targets_of
from benchmarks.soak.monitor import TICK_SECONDS, Monitor
from benchmarks.soak.promises import RECOVERY, UNAFFECTED, Breach
from benchmarks.soak.recovery import Recovery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from benchmarks.soak.observation import Reading
    from benchmarks.soak.proxied_run import ProxiedRun

START_SECONDS = 300.0
"""Timeout until a run trains: four processes load torch, on a machine that may be busy."""
OUTAGE_SECONDS = 10.0
"""A learner that loses one of several actors for this long must make an update meanwhile."""

LONGEST_BREATH_SECONDS = 1.0
"""Pause between a recovery and the next fault if the soak is late, so that the fault does not follow at once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The intensity of the soak."""

    seconds: float
    """Duration of the soak, from the start of training."""
    num_faults: int
    recovery_limit_seconds: float
    """Maximum recovery time after the end of a fault."""
    long_seconds: float
    """Duration of a long stop: longer than every timeout of the run."""
    unrolls_per_message: int
    all_faults: bool = False
    """Continue after ``seconds`` until all faults were injected, because a busy machine recovers slowly."""


@dataclass(frozen=True, slots=True)
class Survived:
    """One fault, or two at once, and its result."""

    at: float
    """Seconds since the soak began."""
    faults: tuple[Fault, ...]
    recovery_seconds: float | None
    """Time from the end of the (last) fault, or from the kill for kill and move. None: not within the limit, or the soak was ended."""
    missing: tuple[str, ...] = ()
    """What was missing if the run did not recover."""


@dataclass(slots=True)
class Story:
    """The events so far."""

    events: list[Survived] = field(default_factory=list)
    num_void: int = 0
    """Faults whose target was not running, for example because another fault had just killed it."""

    @property
    def num_faults(self) -> int:
        """Number of injected faults; two at once count as two."""
        return sum(len(event.faults) for event in self.events)


class Soak:
    """Drives one run, and observes it during every wait."""

    def __init__(self, run: ProxiedRun, monitor: Monitor, plan: Plan, random: Random, say: Callable[[str, bool], None]) -> None:
        """``say``: receives a status line, and whether it is important."""
        self._run = run
        self._monitor = monitor
        self._plan = plan
        self._random = random
        self._say = say
        self._active: list[Fault] = []
        self.story = Story()

    def wait_until_it_trains(self) -> None:
        """Wait for updates, for every actor and parameter server, and for the first checkpoint.

        Raises:
            TimeoutError: the run does not start training.
        """
        recovery = Recovery({}, [(0, 0)] * self._run.num_agents, self._plan.unrolls_per_message, self._run.children)
        deadline = time.monotonic() + START_SECONDS
        while (missing := recovery.missing(self._monitor.tick())) or not all(ledger.num_snapshots for ledger in self._monitor.ledgers):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the run does not train after {START_SECONDS:g} s: {'; '.join(missing) or 'no checkpoint'}")
            self._pause("starting: " + (missing[0] if missing else "no checkpoint yet"))

    def go(self) -> None:
        """Inject faults until the time is over; after the last fault, wait for the end of the time."""
        plan, monitor, story = self._plan, self._monitor, self.story
        started = monitor.seconds
        slot = plan.seconds / max(1, plan.num_faults)
        targets = targets_of(self._run)
        # Each fault has its own interval and occurs at a random moment of it. After slow recoveries, the next faults follow at once.
        next_at = started + self._random.uniform(0.0, slot)
        end = started + plan.seconds
        while (now := monitor.seconds) < end or (plan.all_faults and story.num_faults < plan.num_faults):
            if story.num_faults >= plan.num_faults or now < next_at:
                monitor.tick()
                self._pause("running")
                continue
            faults = draw(self._random, targets, long_seconds=plan.long_seconds)[: plan.num_faults - story.num_faults]
            if not plan.all_faults and sum(fault.seconds for fault in faults) + now > end:
                faults = ()  # it would last longer than the soak
            if faults:
                self.survive(faults)
            due = started + (story.num_faults + self._random.random()) * slot
            next_at = max(monitor.seconds + self._random.uniform(0.0, LONGEST_BREATH_SECONDS), due)

    def survive(self, faults: Sequence[Fault]) -> Survived | None:
        """Inject, lift, and wait for the recovery; None if nothing could be injected."""
        monitor = self._monitor
        at, before = monitor.seconds, dict(monitor.last)
        injected = [fault for fault in faults if self._inject(fault)]
        if not injected:
            self.story.num_void += 1
            return None
        try:
            over_at = self._endure(injected)
        finally:
            self.lift_all()
        self._check_unaffected(injected, before)
        killed = {fault.target for fault in injected if kills(fault)}
        # Recovery is measured from the end of a stop or cut, and from a kill itself.
        known = {name: before.get(name, reading) if name in killed else reading for name, reading in monitor.last.items()}
        recovery = Recovery(known, monitor.newest, self._plan.unrolls_per_message, self._run.children, killed)
        survived = self._recover(at, tuple(injected), over_at, recovery)
        self.story.events.append(survived)
        self._say(self._describe(survived), True)
        return survived

    def lift_all(self) -> None:
        """Lift all faults."""
        while self._active:
            lift(self._run, self._active.pop())

    def _inject(self, fault: Fault) -> bool:
        if not inject(self._run, fault):
            return False
        if kills(fault):
            self._monitor.expect_exit(fault.target)
        self._active.append(fault)
        return True

    def _endure(self, faults: Sequence[Fault]) -> float:
        """Wait while the faults last, and lift each in time; return when the last one has ended."""
        started = over_at = self._monitor.seconds
        lasting = sorted((fault for fault in faults if not is_over_at_once(fault)), key=lambda fault: fault.seconds)
        for fault in lasting:
            while (left := started + fault.seconds - self._monitor.seconds) > 0:
                self._monitor.tick({other.target for other in self._active if other.kind in {"stop", "stop_long"}})
                self._pause(str(fault), min(left, TICK_SECONDS))
            lift(self._run, fault)
            self._active.remove(fault)
            over_at = self._monitor.seconds
        return over_at

    def _recover(self, at: float, faults: tuple[Fault, ...], over_at: float, recovery: Recovery) -> Survived:
        monitor, limit = self._monitor, self._plan.recovery_limit_seconds
        while missing := recovery.missing(monitor.tick()):
            if monitor.seconds - over_at > limit:
                what = " and ".join(map(str, faults))
                monitor.broken(Breach(RECOVERY, f"{limit:g} s after {what}: {'; '.join(missing)}"))
                return Survived(at, faults, None, tuple(missing))
            self._pause(f"recovering from {faults[0].kind} {faults[0].target}: {missing[0]}")
        return Survived(at, faults, monitor.seconds - over_at)

    def _check_unaffected(self, faults: Sequence[Fault], before: dict[str, Reading]) -> None:
        """Check that the learner continued while one of several actors was away for long."""
        fault = faults[0]
        actors = [name for name in self._run.children if name.startswith("actor")]
        is_one_of_several = fault.target in actors and len(actors) >= 2 and self._run.num_agents == 1
        if len(faults) > 1 or not is_one_of_several or fault.seconds < OUTAGE_SECONDS:
            return
        for name in self._run.children:
            was, now = before.get(name), self._monitor.last.get(name)
            if name.startswith("learner") and was == now:
                self._monitor.broken(Breach(UNAFFECTED, f"{name} made no update while {fault}"))

    def _pause(self, text: str, seconds: float = TICK_SECONDS) -> None:
        self._say(self._line(text), False)
        time.sleep(seconds)

    def _line(self, text: str) -> str:
        minutes, seconds = divmod(int(self._monitor.seconds), 60)
        curve = self._monitor.record.curve
        progress = f"{curve[-1].env_frames:,} frames, return {curve[-1].mean_return or 0.0:.2f}" if curve else "no frames yet"
        faults = f"{self.story.num_faults}/{self._plan.num_faults} faults"
        return f"{minutes:3d}:{seconds:02d}  {faults}  {self._monitor.record.num_breaches} broken  {progress}  {text}"

    def _describe(self, survived: Survived) -> str:
        what = " + ".join(map(str, survived.faults))
        end = f"{survived.recovery_seconds:.1f} s" if survived.recovery_seconds is not None else "NOT RECOVERED"
        return self._line(f"{what}: {end}")
