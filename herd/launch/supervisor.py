"""The main loop that keeps the processes of a run alive until it is over. restarts.py and shutdown.py make the decisions."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from herd.launch.child import Child, describe_exit, last_lines
from herd.launch.plan import ChildPlan, Start
from herd.launch.readings import ChildState, Readings, Watcher, trains
from herd.launch.restarts import (
    ExitRecord,
    Failures,
    GiveUp,
    Restart,
    RestartPolicy,
    after_exit,
    fails_for_good,
)
from herd.launch.shutdown import Grace, Phase, Shutdown, Signals
from herd.run.paths import LOGS, REPORT
from herd.service import EXIT_BAD_INPUT, EXIT_LOST, EXIT_SHARD_LOST
from herd.service.signals import SignalInbox

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from herd.config.run import StopSettings

_TICK_SECONDS = 0.5
"""Interval of the loop, for redraws, restarts and deadlines; signals and ended children wake it at once."""
_SHOWN_LOG_LINES = 20
MAX_START_SECONDS = 600.0
"""Longest start that ``stop.wall_seconds`` does not count, because a first update with a cold compiler takes minutes. A run that never
trains ends after this time plus ``stop.wall_seconds``."""


class View(Protocol):
    """Where the supervisor shows the run. Its methods must return soon and must not raise."""

    def show(self, children: Sequence[ChildState], readings: Readings, elapsed_seconds: float, trained_seconds: float) -> None:
        """Show the present state. ``trained_seconds``: the time that ``stop.wall_seconds`` counts."""

    def note(self, message: str) -> None:
        """Print a message once."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    exit_code: int
    """0: a stop condition or a request to stop; 2: invalid input of a child; 1: anything else."""
    message: str
    """One line; empty after success."""
    log_lines: tuple[str, ...] = ()
    """End of the log of the child that ended the run."""
    log: Path | None = None
    given_up: tuple[str, ...] = ()
    """One line for each child that kept failing and that the others went on without."""


def _identity(file: Path | None) -> tuple[int, int] | None:
    """Return the identity of a file, which changes when the file is replaced."""
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns)


@dataclass(slots=True)
class _Slot:
    """The slot of a child: its present process, or the time of its next start."""

    plan: ChildPlan
    log: Path
    child: Child | None = None
    start_at: float | None = 0.0
    """When to start it; None while it runs or if it is no longer needed."""
    failures: Failures = field(default_factory=Failures)
    most_work: float = 0.0
    """Before the present process."""
    last_exit: ExitRecord | None = None
    """How the previous process failed, if it ended by itself."""
    given_up: bool = False
    """Whether the run goes on without it."""
    follows: bool = False
    """Whether it was killed here because another shard of its agent ended, which is not its own failure."""


@dataclass(slots=True)
class _Agent:
    """The learner of an agent. Its shards run, fail and end together."""

    shards: tuple[str, ...]
    end_explained: bool = False
    """Whether, since the last start of the shards, one was counted for the end of their group, or the group had made progress."""
    kill_at: float | None = None
    """When to kill the remaining shards, after a shard has ended cleanly and the agent's run is over; None before."""
    report: Path | None = None
    report_before: object = None
    """Identity of the report at the last start of the shards."""


class Supervisor:
    """Runs the children of a run; ``run`` returns when all have ended."""

    def __init__(
        self,
        plans: Sequence[ChildPlan],
        run_dir: Path,
        stop: StopSettings,
        view: View,
        *,
        agent_directories: Sequence[Path] | None = None,
        started: float | None = None,
        policy: RestartPolicy | None = None,
        grace: Grace | None = None,
        most_start_seconds: float = MAX_START_SECONDS,
    ) -> None:
        """Prepare; nothing is started.

        Args:
            plans: children in starting order, including the learners' shards. If a shard exits with code 0, its agent's run is over; the
                run ends with its last agent.
            run_dir: directory of logs and announcements.
            stop: stop conditions of the run. The learner applies them, and the view shows the progress.
            view: the output for the user.
            agent_directories: directory of each agent's learner; None: only ``run_dir``, for a single agent.
            started: time.monotonic() at the start of the command, in seconds; None: now.
            policy: limits of restarts.
            grace: grace periods of the shutdown.
            most_start_seconds: time until the first update after which ``stop.wall_seconds`` counts in any case.

        """
        self._run_dir = run_dir
        self._stop = stop
        self._view = view
        self._started = time.monotonic() if started is None else started
        self._trains_since: float | None = None
        self._most_start_seconds = most_start_seconds
        self._policy = policy or RestartPolicy()
        self._slots = {plan.name: _Slot(plan, run_dir / LOGS / f"{plan.name}.log") for plan in plans}
        agent_of = {plan.name: plan.agent for plan in plans if plan.agent is not None}
        agents = [_Agent(tuple(name for name in agent_of if agent_of[name] == agent)) for agent in sorted(set(agent_of.values()))]
        self._agents = {name: agent for agent in agents for name in agent.shards}
        for agent, directory in zip(agents, agent_directories or [run_dir], strict=False):
            agent.report = directory / REPORT
        self._grace = grace or Grace()
        self._shutdown = Shutdown(self._grace, tuple(self._agents))
        self._outcome = Outcome(0, "")
        self._given_up: dict[str, str] = {}
        self._agent_directories = agent_directories

    def run(self, inbox: SignalInbox | None = None) -> Outcome:
        """Start all children and return when all have ended. Must be called from the main thread, which receives signals.

        Args:
            inbox: an entered inbox, whose earlier requests also count; None: a new one.

        """
        if inbox is None:
            with SignalInbox() as own:
                return self.run(own)
        watcher = Watcher(self._run_dir, self._agent_directories)
        try:
            while not self._is_over():
                if inbox.asked:
                    self._asked_to_stop(insisted=inbox.insisted)
                self._collect_exits(watcher)
                self._kill_late_shards()
                self._start_due(inbox)
                self._notice_training(watcher)
                if self._stop.wall_seconds is not None and self._trained() >= self._stop.wall_seconds:
                    self._request_stop()  # in time, even if a learner is slow to notice
                self._send(*self._shutdown.advance(time.monotonic(), self._alive()))
                self._look(watcher)
                if not self._is_over():
                    inbox.wait(_TICK_SECONDS)
        finally:
            # Even if the loop itself failed, no child is left behind.
            self._send(*self._shutdown.hurry(self._alive()))
            watcher.close()
        self._look_for_reports()
        return replace(self._outcome, given_up=tuple(self._given_up.values()))

    def _look_for_reports(self) -> None:
        """Fail the run if an agent is missing from its results.

        It was given up, or its learner was restarting when the run was stopped: it left no report, and its newest progress is lost.
        """
        for name, agent in self._agents.items():
            if self._outcome.exit_code == 0 and name in self._given_up:
                self._outcome = Outcome(1, self._given_up[name])
            restarts = max(self._slots[shard].failures.restarts for shard in agent.shards)
            was_stopped = agent.kill_at is None  # otherwise it ended by itself, and has its report from this or an earlier start
            if self._outcome.exit_code == 0 and was_stopped and restarts and _identity(agent.report) == agent.report_before:
                self._fail(name, 1, f"{name} was stopped while it was restarting: it left no report, and its newest checkpoint is older")

    def _collect_exits(self, watcher: Watcher) -> None:
        ended = []
        for name, slot in self._slots.items():
            if slot.child is not None and (code := slot.child.exit_code()) is not None:
                record = ExitRecord(code, "".join(slot.child.last_lines(1)).strip(), time.monotonic() - slot.child.started)
                work = watcher.most_work(slot.child.pid)
                slot.child = None
                ended.append((name, slot, code, work, record))
        # The shard that broke the group comes before the shards that lost it.
        ended.sort(key=lambda each: each[2] == EXIT_SHARD_LOST)
        for name, slot, code, work, record in ended:
            if slot.given_up:
                continue
            if self._shutdown.phase is not Phase.RUNNING:
                self._ended_while_stopping(name, code)
            elif name in self._agents and (code in {0, EXIT_LOST} or self._agents[name].kill_at is not None):
                self._agent_ended(name, code)
            else:
                self._ended_unasked(slot, code, work, record)

    def _agent_ended(self, name: str, code: int) -> None:
        """Record that a shard has ended cleanly, so its agent's run is over. The run ends with its last agent."""
        agent = self._agents[name]
        self._ended_while_stopping(name, code)
        if agent.kill_at is None:
            agent.kill_at = time.monotonic() + self._grace.learner_seconds
            if all(other.kill_at is not None for other in self._agents.values()):
                self._request_stop()
                return
            self._view.note(f"{name} has ended; its actors now play for the other agents")
            for other in agent.shards:
                slot = self._slots[other]
                slot.start_at = None
                if slot.child is not None:
                    slot.child.send(signal.SIGTERM)

    def _kill_late_shards(self) -> None:
        if self._shutdown.phase is not Phase.RUNNING:
            return
        for name, agent in self._agents.items():
            child = self._slots[name].child
            if child is not None and agent.kill_at is not None and time.monotonic() >= agent.kill_at:
                child.send(signal.SIGKILL)

    def _ended_unasked(self, slot: _Slot, code: int, work: float, record: ExitRecord | None = None) -> None:
        name = slot.plan.name
        # The learner's work counts over the whole run: repeating lost updates is not progress. Others count from their start.
        progressed = work > (slot.most_work if name in self._agents else 0.0)
        slot.most_work = max(slot.most_work, work)
        # It may have ended by itself between the decision to kill it and the signal.
        code_or_lost = EXIT_SHARD_LOST if slot.follows and code == -signal.SIGKILL else code
        slot.follows = False
        is_final = record is not None and fails_for_good(slot.last_exit, record, progressed=progressed, policy=self._policy)
        slot.last_exit = record
        slot.failures, decision = after_exit(
            slot.failures,
            exit_code=code_or_lost,
            progressed=progressed,
            policy=self._policy,
            is_explained=self._is_group_end_explained(name, code_or_lost, progressed=progressed),
        )
        if isinstance(decision, Restart) and record is not None and is_final:
            self._give_up(slot, 1, f"failed twice in the same way shortly after its start: {record.line or describe_exit(code)}")
        elif isinstance(decision, GiveUp):
            said = record.line if record is not None and code == EXIT_BAD_INPUT else ""
            self._give_up(slot, decision.exit_code, f"ended ({describe_exit(code)}): {said or decision.reason}")
        else:
            slot.start_at = time.monotonic() + decision.delay_seconds
            said = f"{describe_exit(code)}: {record.line}" if record is not None and record.line and code > 0 else describe_exit(code)
            self._view.note(f"{name} ended ({said}); it will be restarted in {decision.delay_seconds:g} s (log: {slot.log})")
            if name in self._agents:
                self._end_other_shards(name)

    def _give_up(self, slot: _Slot, exit_code: int, reason: str) -> None:
        """Go on without a child that keeps failing, or without its agent; end the run if the others need it.

        Bad input that a child finds before it has worked is that of all others too; later it is its own, such as infinite weights.
        """
        name, agent = slot.plan.name, self._agents.get(slot.plan.name)
        if (exit_code == EXIT_BAD_INPUT and not slot.most_work) or not self._can_spare(slot):
            self._fail(name, exit_code, f"{name} {reason}")
            self._request_stop()
            return
        line = f"{name} is given up: it {reason}" if agent is None else f"agent {slot.plan.agent} is given up: {name} {reason}"
        for each in [slot] if agent is None else [self._slots[shard] for shard in agent.shards]:
            each.given_up, each.start_at = True, None
        if agent is not None:
            agent.kill_at = time.monotonic()
            self._end_other_shards(name)
        self._given_up[name] = f"{line} (log: {slot.log})"
        self._view.note(f"warning: {line}; the others go on (log: {slot.log})")

    def _can_spare(self, slot: _Slot) -> bool:
        agent = self._agents.get(slot.plan.name)
        if agent is not None and all(other.kill_at is not None for other in self._agents.values() if other is not agent):
            return False
        missing = {
            other.plan.name if agent is None else other.plan.agent
            for other in self._slots.values()
            if other.given_up and other.plan.service == slot.plan.service
        }
        return len(missing) < slot.plan.spare

    def _is_group_end_explained(self, name: str, code: int, *, progressed: bool) -> bool:
        """Return whether the loss of another shard need not be counted, because another end was or will be counted."""
        agent = self._agents.get(name)
        if agent is None:
            return True
        agent.end_explained |= progressed or code != EXIT_SHARD_LOST
        if agent.end_explained or any(self._slots[other].child is not None for other in agent.shards):
            return True
        agent.end_explained = True
        return False

    def _end_other_shards(self, name: str) -> None:
        """Kill the other shards of a learner, by SIGKILL, because the missing shard may be a stopped process."""
        for other in self._agents[name].shards:
            slot = self._slots[other]
            if other != name and slot.child is not None and slot.child.exit_code() is None and not slot.follows:
                slot.follows = True
                slot.child.send(signal.SIGKILL)

    def _ended_while_stopping(self, name: str, code: int) -> None:
        """Report a process that did not stop properly, because a learner may have lost its last checkpoint.

        SIGTERM itself can end only a process that has just started, because a service handles SIGTERM first of all.
        """
        if code == EXIT_LOST and self._outcome.exit_code == 0:
            self._fail(name, 1, f"{name} could not write its last files: is the disk full?")
        elif name in self._agents and code not in {0, -signal.SIGTERM} and self._outcome.exit_code == 0:
            self._fail(name, EXIT_BAD_INPUT if code == EXIT_BAD_INPUT else 1, f"{name} did not stop properly ({describe_exit(code)})")

    def _fail(self, name: str, exit_code: int, message: str) -> None:
        slot = self._slots[name]
        lines = tuple(last_lines(slot.log, _SHOWN_LOG_LINES))
        if exit_code == EXIT_BAD_INPUT and lines and lines[-1].startswith(f"{slot.plan.service}: "):
            # The child's own line already says what is wrong.
            self._outcome = Outcome(exit_code, lines[-1], (), slot.log)
        else:
            self._outcome = Outcome(exit_code, message, lines, slot.log)

    def _start_due(self, inbox: SignalInbox) -> None:
        if self._shutdown.phase is not Phase.RUNNING:
            return
        now = time.monotonic()
        for slot in self._slots.values():
            if inbox.asked:
                return  # a stop was requested: do not start the rest
            if slot.child is None and slot.start_at is not None and now >= slot.start_at and not self._waits_for_shards(slot):
                slot.start_at = None
                self._start(slot)

    def _waits_for_shards(self, slot: _Slot) -> bool:
        """Return whether shards of the old group are still running; a new group starts after all have ended."""
        agent = self._agents.get(slot.plan.name)
        return agent is not None and any(self._slots[name].follows for name in agent.shards)

    def _start(self, slot: _Slot) -> None:
        agent = self._agents.get(slot.plan.name)
        if agent is not None and all(self._slots[name].child is None for name in agent.shards):
            agent.end_explained = False
            agent.report_before = _identity(agent.report)
        command = slot.plan.command(Start(slot.failures.restarts, self._trained()))
        try:
            slot.child = Child(command, slot.plan.environment, slot.log, niceness=slot.plan.niceness)
        except OSError as error:  # the machine is out of processes or memory, perhaps temporarily
            self._view.note(f"{slot.plan.name} cannot be started: {error.strerror or error}")
            self._ended_unasked(slot, 1, work=0.0)
            return
        if slot.child.log_problem is not None:
            self._view.note(f"{slot.plan.name} runs without a log: {slot.log}: {slot.child.log_problem}")

    def _asked_to_stop(self, *, insisted: bool) -> None:
        if self._shutdown.phase is Phase.RUNNING:
            self._view.note("stopping: the learner is writing a checkpoint (press Ctrl-C again to kill all processes at once)")
            self._request_stop()
        elif insisted and self._shutdown.phase not in {Phase.KILLING, Phase.DONE}:
            if self._outcome.exit_code == 0:
                self._outcome = Outcome(1, "killed: the newest checkpoint is an older one")
            self._send(*self._shutdown.hurry(self._alive()))

    def _request_stop(self) -> None:
        self._send(*self._shutdown.request(time.monotonic(), self._alive()))

    def _send(self, state: Shutdown, signals: Signals) -> None:
        self._shutdown = state
        for name, number in signals:
            child = self._slots[name].child
            if child is not None:
                child.send(number)

    def _look(self, watcher: Watcher) -> None:
        watcher.watch({name: slot.child.pid for name, slot in self._slots.items() if slot.child is not None})
        for slot in self._slots.values():
            if slot.child is not None:
                slot.child.bound_log()
        states = [
            ChildState(name, self._state(slot), slot.child.pid if slot.child else None, slot.failures.restarts)
            for name, slot in self._slots.items()
        ]
        self._view.show(states, watcher.latest, self._elapsed(), self._trained())

    def _state(self, slot: _Slot) -> str:
        if slot.child is not None:
            return "running" if self._shutdown.phase is Phase.RUNNING else "stopping"
        if self._shutdown.phase is not Phase.RUNNING:
            return "stopped"
        if slot.given_up:
            return "given up"
        agent = self._agents.get(slot.plan.name)
        return "restarting" if agent is None or agent.kill_at is None else "ended"

    def _alive(self) -> list[str]:
        return [name for name, slot in self._slots.items() if slot.child is not None]

    def _is_over(self) -> bool:
        return self._shutdown.phase is Phase.DONE

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _notice_training(self, watcher: Watcher) -> None:
        """Notice the first update of any learner, from which ``stop.wall_seconds`` counts."""
        if self._trains_since is None and any(trains(watcher.latest, name) for name in self._agents):
            self._trains_since = time.monotonic()

    def _trained(self) -> float:
        if self._trains_since is not None:
            return time.monotonic() - self._trains_since
        return max(0.0, self._elapsed() - self._most_start_seconds)
