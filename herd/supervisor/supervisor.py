"""The loop that keeps a run's processes alive until it is over. Decisions are taken in restarts.py and shutdown.py."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from herd.supervisor.child import Child, describe_exit, last_lines
from herd.supervisor.plan import ChildPlan, Start
from herd.supervisor.readings import Watcher, earlier_points, trains
from herd.supervisor.restarts import (
    EXIT_BAD_INPUT,
    EXIT_LOST,
    EXIT_SHARD_LOST,
    Failures,
    GiveUp,
    LastWords,
    Restart,
    RestartPolicy,
    after_exit,
    fails_for_good,
)
from herd.supervisor.run_directory import LOGS
from herd.supervisor.shutdown import Grace, Phase, Shutdown, Signals
from herd.supervisor.signals import SignalInbox
from herd.supervisor.snapshot import AgentsSnapshotMaker, ChildState
from herd.supervisor.summary import REPORT
from herd.supervisor.view import SteadyView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from herd.config.settings import StopSettings
    from herd.supervisor.view import View

_TICK_SECONDS = 0.5
"""Redraws, restarts that are due and deadlines; signals and dead children wake the loop at once."""
_SHOWN_LOG_LINES = 20
MOST_START_SECONDS = 600.0
"""Of a start that ``stop.wall_seconds`` does not count: a first update with a cold compiler takes minutes. A run that never trains ends
then, too."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    exit_code: int
    """0: a stop condition or a request to stop; 2: a child's input cannot work; 1: anything else."""
    message: str
    """One line; empty where all went well."""
    log_lines: tuple[str, ...] = ()
    """End of the log of the child that ended the run."""
    log: Path | None = None


def _identity(file: Path | None) -> tuple[int, int] | None:
    """Which file is there: one that is written anew is another."""
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns)


@dataclass(slots=True)
class _Slot:
    """A child's place: the process that fills it now, or when the next one will."""

    plan: ChildPlan
    log: Path
    child: Child | None = None
    start_at: float | None = 0.0
    """When to start it; None while it runs or when it is not wanted any more."""
    failures: Failures = field(default_factory=Failures)
    most_work: float = 0.0
    """Before the present process."""
    last_words: LastWords | None = None
    """Of the process before the present one, where it ended by itself."""
    follows: bool = False
    """Killed here because another shard of its agent ended: no failure of its own."""


@dataclass(slots=True)
class _Agent:
    """The learner of one agent: its shards live, fail and end together."""

    shards: tuple[str, ...]
    end_explained: bool = False
    """Since shards were last started, one was counted for the end of their group, or the group had made progress."""
    kill_at: float | None = None
    """Its run is over, as a shard said by ending in order: when to kill those that have not ended. None before."""
    report: Path | None = None
    report_before: object = None
    """Which report there was when shards were last started."""


class Supervisor:
    """Runs the children of one run; ``run`` returns when all have ended."""

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
        most_start_seconds: float = MOST_START_SECONDS,
    ) -> None:
        """Prepare; nothing is started.

        Args:
            plans: children in the order to start them; among them the learners' shards. The end of one with code 0 ends its agent, and
                the last agent's end ends the run.
            run_dir: where logs go and announcements are found.
            stop: the run's stop conditions: the learner obeys them, the view shows the way to them.
            view: what the user sees.
            agent_directories: where each agent's learner writes; None: ``run_dir``, of the only agent.
            started: time.monotonic() when the command began, in seconds; None: now.
            policy: of restarts.
            grace: of shutdown.
            most_start_seconds: until the first update, beyond which ``stop.wall_seconds`` counts all the same.

        """
        self._run_dir = run_dir
        self._stop = stop
        self._view = SteadyView(view)
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
        self._agent_directories = agent_directories
        self._snapshots = AgentsSnapshotMaker(stop, agent_of, [earlier_points(directory) for directory in agent_directories or [run_dir]])

    def run(self, inbox: SignalInbox | None = None) -> Outcome:
        """Start everything and stay until nothing is left. Call from the main thread, which owns the signals.

        Args:
            inbox: entered already, where requests from before this call count too; None: one of its own.

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
                self._start_due(watcher, inbox)
                self._notice_training(watcher)
                if self._stop.wall_seconds is not None and self._trained() >= self._stop.wall_seconds:
                    self._request_stop()  # on time also where a learner takes its time
                self._send(*self._shutdown.advance(time.monotonic(), self._alive()))
                self._look(watcher)
                if not self._is_over():
                    inbox.wait(_TICK_SECONDS)
        finally:
            # Also when the loop itself failed: nothing stays behind.
            self._send(*self._shutdown.hurry(self._alive()))
            watcher.close()
        self._look_for_reports()
        return self._outcome

    def _look_for_reports(self) -> None:
        """A learner that was starting again when the run was stopped has left no report, and what it had learned since is lost."""
        for name, agent in self._agents.items():
            restarts = max(self._slots[shard].failures.restarts for shard in agent.shards)
            if self._outcome.exit_code == 0 and restarts and _identity(agent.report) == agent.report_before:
                self._fail(name, 1, f"{name} was stopped while it was restarting: it left no report, and its newest checkpoint is older")

    def _collect_exits(self, watcher: Watcher) -> None:
        ended = []
        for name, slot in self._slots.items():
            if slot.child is not None and (code := slot.child.exit_code()) is not None:
                words = LastWords(code, "".join(slot.child.last_lines(1)).strip(), time.monotonic() - slot.child.started)
                slot.child = None
                ended.append((name, slot, code, words))
        # Whoever broke the group of shards comes before those that only lost it.
        ended.sort(key=lambda each: each[2] == EXIT_SHARD_LOST)
        for name, slot, code, words in ended:
            if self._shutdown.phase is not Phase.RUNNING:
                self._ended_while_stopping(name, code)
            elif name in self._agents and (code in {0, EXIT_LOST} or self._agents[name].kill_at is not None):
                self._agent_ended(name, code)
            else:
                self._ended_unasked(slot, code, watcher, words)

    def _agent_ended(self, name: str, code: int) -> None:
        """A shard ended in order, or after one that did: its agent's run is over. The last agent's end is the run's."""
        agent = self._agents[name]
        self._ended_while_stopping(name, code)
        if agent.kill_at is None:
            agent.kill_at = time.monotonic() + self._grace.learner_seconds
            if all(other.kill_at is not None for other in self._agents.values()):
                self._request_stop()
                return
            self._view.note(f"{name} has ended; its actors act for the other agents")
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

    def _ended_unasked(self, slot: _Slot, code: int, watcher: Watcher, words: LastWords | None = None) -> None:
        name = slot.plan.name
        work = watcher.most_work(name)
        # The learner's work counts over the whole run: doing lost updates again is no progress. The others count from their start.
        progressed = work > (slot.most_work if name in self._agents else 0.0)
        slot.most_work = max(slot.most_work, work)
        watcher.forget_work(name)
        # Between the decision to kill it and the signal it may have ended by itself.
        code_or_lost = EXIT_SHARD_LOST if slot.follows and code == -signal.SIGKILL else code
        slot.follows = False
        is_final = words is not None and fails_for_good(slot.last_words, words, progressed=progressed, policy=self._policy)
        slot.last_words = words
        slot.failures, decision = after_exit(
            slot.failures,
            exit_code=code_or_lost,
            progressed=progressed,
            policy=self._policy,
            is_explained=self._is_group_end_explained(name, code_or_lost, progressed=progressed),
        )
        if isinstance(decision, Restart) and words is not None and is_final:
            said = words.line or describe_exit(code)
            self._fail(name, 1, f"{name} failed twice in the same way right after its start: {said}")
            self._request_stop()
        elif isinstance(decision, GiveUp):
            self._fail(name, decision.exit_code, f"{name} ended ({describe_exit(code)}): {decision.reason}")
            self._request_stop()
        else:
            slot.start_at = time.monotonic() + decision.delay_seconds
            self._view.note(f"{name} ended ({describe_exit(code)}); it starts again in {decision.delay_seconds:g} s (log: {slot.log})")
            if name in self._agents:
                self._end_other_shards(name)

    def _is_group_end_explained(self, name: str, code: int, *, progressed: bool) -> bool:
        """Whether losing another shard needs no counting: another end was counted, or will be. The last one to end answers for all."""
        agent = self._agents.get(name)
        if agent is None:
            return True
        agent.end_explained |= progressed or code != EXIT_SHARD_LOST
        if agent.end_explained or any(self._slots[other].child is not None for other in agent.shards):
            return True
        agent.end_explained = True
        return False

    def _end_other_shards(self, name: str) -> None:
        """Shards go on together or not at all. By SIGKILL, because the one that the others missed may be a stopped process."""
        for other in self._agents[name].shards:
            slot = self._slots[other]
            if other != name and slot.child is not None and slot.child.exit_code() is None and not slot.follows:
                slot.follows = True
                slot.child.send(signal.SIGKILL)

    def _ended_while_stopping(self, name: str, code: int) -> None:
        """A learner that could not finish in order may have lost its last checkpoint: that is worth a word and an exit code.

        SIGTERM itself ends only one that had not yet begun: the first thing that a service does is to listen for it.
        """
        if code == EXIT_LOST and self._outcome.exit_code == 0:
            self._fail(name, 1, f"{name} could not write its last files: is the disk full?")
        elif name in self._agents and code not in {0, -signal.SIGTERM} and self._outcome.exit_code == 0:
            self._fail(name, EXIT_BAD_INPUT if code == EXIT_BAD_INPUT else 1, f"{name} did not stop properly ({describe_exit(code)})")

    def _fail(self, name: str, exit_code: int, message: str) -> None:
        slot = self._slots[name]
        lines = tuple(last_lines(slot.log, _SHOWN_LOG_LINES))
        if exit_code == EXIT_BAD_INPUT and lines and lines[-1].startswith(f"{slot.plan.service}: "):
            # The child's own one line says what is wrong; nothing around it would help.
            self._outcome = Outcome(exit_code, lines[-1], (), slot.log)
        else:
            self._outcome = Outcome(exit_code, message, lines, slot.log)

    def _start_due(self, watcher: Watcher, inbox: SignalInbox) -> None:
        if self._shutdown.phase is not Phase.RUNNING:
            return
        now = time.monotonic()
        for slot in self._slots.values():
            if inbox.asked:
                return  # to stop: the rest is not started
            if slot.child is None and slot.start_at is not None and now >= slot.start_at and not self._waits_for_shards(slot):
                slot.start_at = None
                self._start(slot, watcher)

    def _waits_for_shards(self, slot: _Slot) -> bool:
        """A new group begins once the old one has ended, all of it."""
        agent = self._agents.get(slot.plan.name)
        return agent is not None and any(self._slots[name].follows for name in agent.shards)

    def _start(self, slot: _Slot, watcher: Watcher) -> None:
        agent = self._agents.get(slot.plan.name)
        if agent is not None and all(self._slots[name].child is None for name in agent.shards):
            agent.end_explained = False
            agent.report_before = _identity(agent.report)
        command = slot.plan.command(Start(slot.failures.restarts, self._trained()))
        try:
            slot.child = Child(command, slot.plan.environment, slot.log, niceness=slot.plan.niceness)
        except OSError as error:  # the machine is out of processes or memory: it may have some again
            self._view.note(f"{slot.plan.name} cannot be started: {error.strerror or error}")
            self._ended_unasked(slot, 1, watcher)
            return
        if slot.child.log_problem is not None:
            self._view.note(f"{slot.plan.name} runs without a log: {slot.log}: {slot.child.log_problem}")

    def _asked_to_stop(self, *, insisted: bool) -> None:
        if self._shutdown.phase is Phase.RUNNING:
            self._view.note("stopping: the learner writes a checkpoint (Ctrl-C once more to kill everything at once)")
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
        states = [
            ChildState(name, self._state(slot), slot.child.pid if slot.child else None, slot.failures.restarts)
            for name, slot in self._slots.items()
        ]
        self._view.show(self._snapshots.make(watcher.latest, states, self._elapsed(), self._trained()))

    def _state(self, slot: _Slot) -> str:
        if slot.child is not None:
            return "running" if self._shutdown.phase is Phase.RUNNING else "stopping"
        if self._shutdown.phase is not Phase.RUNNING:
            return "stopped"
        agent = self._agents.get(slot.plan.name)
        return "restarting" if agent is None or agent.kill_at is None else "ended"

    def _alive(self) -> list[str]:
        return [name for name, slot in self._slots.items() if slot.child is not None]

    def _is_over(self) -> bool:
        return self._shutdown.phase is Phase.DONE

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _notice_training(self, watcher: Watcher) -> None:
        """``stop.wall_seconds`` counts from the first update of any learner on."""
        if self._trains_since is None and any(trains(watcher.latest, name) for name in self._agents):
            self._trains_since = time.monotonic()

    def _trained(self) -> float:
        if self._trains_since is not None:
            return time.monotonic() - self._trains_since
        return max(0.0, self._elapsed() - self._most_start_seconds)
