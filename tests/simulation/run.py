"""Runs a seed: a world with all processes, its faults, and afterwards the proof that everything goes on."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import structlog
from herd_bandit.task_bandit import TaskBandit
from herd_learner.intake import ingest

from herd.service import inbox
from tests.simulation.actors import Actor
from tests.simulation.invariants import Invariants
from tests.simulation.learners import Learner
from tests.simulation.servers import (
    REPLICA,
    ROOT,
    BanditProcess,
    ParameterServerProcess,
    PopulationProcess,
    ReplayProcess,
)
from tests.simulation.world import Plan, Violation, World

NUM_ACTORS = 3
PROGRESS_SECONDS = 150.0
"""Virtual seconds within which everything must go on after the last fault: more than twice the longest silence that ends a lease."""


@dataclass(frozen=True)
class Result:
    plan: Plan
    digest: str
    num_events: int
    marks: Counter[str]
    failure: str | None
    """What was violated, and when; None if nothing was."""


class Cluster:
    """All processes of a run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.root = ParameterServerProcess(world, ROOT)
        self.replica = ParameterServerProcess(world, REPLICA, ROOT)
        self.bandit = BanditProcess(world)
        self.replay = ReplayProcess(world)
        self.population = PopulationProcess(world) if world.plan.num_agents > 1 else None
        self.learners = [Learner(world, agent) for agent in range(world.plan.num_agents)]
        num_games = [0]
        addresses = [REPLICA, REPLICA, ROOT]
        self.actors = [Actor(world, number, addresses[number], self.learners, num_games) for number in range(NUM_ACTORS)]
        self.num_games = num_games
        for folder in sorted({process.folder for process in world.processes}):
            world.disk.exists_already(folder)
        world.at(world.plan.late_seconds, self.actors[-1].start)
        for process in [self.root, self.replica, self.bandit, self.replay, self.population, *self.actors[:-1]]:
            if process is not None:
                process.start()
        for learner in self.learners:
            learner.start()

    def progress(self) -> Callable[[], list[str]]:
        """Return a function that names what has not gone on since now."""
        updates = [learner.num_updates_ever for learner in self.learners]
        published = [{None, *learner.published} for learner in self.learners]
        first_game, num_stored = self.num_games[0], self.replay.num_stored
        expects_games = self.world.plan.max_policy_lag is None  # otherwise stale unrolls make holes
        heard: set[int] = set()
        answered = {learner.agent: self._answered(learner) for learner in self.learners}
        sent = [(actor, stint, message) for actor in self.actors if (stint := actor.stint) is not None for message in stint.sent]

        def missing() -> list[str]:
            found = []
            for learner, before, old in zip(self.learners, updates, published, strict=True):
                if learner.num_updates_ever < before + 2:
                    found.append(f"learner {learner.agent} makes no updates")
                if all(actor.newest.get(learner.agent) in old for actor in self.actors):
                    found.append(f"no actor gets new weights of agent {learner.agent}")
            if unacked := {actor.name for actor, stint, message in sent if stint is actor.stint and message in stint.sent}:
                found.append(f"{', '.join(sorted(unacked))}: a message is not acknowledged")
            if not any(episode_return > first_game for episode_return in self.bandit.counted):
                found.append("the bandit counts no new game")
            if expects_games and self.replay.num_stored == num_stored:
                found.append("replay stores no new game")
            if self.population is not None:
                for learner in self.learners:
                    if self._answered(learner) not in (None, answered[learner.agent]):
                        heard.add(learner.agent)
                    if learner.agent not in heard:
                        found.append(f"the population does not hear member {learner.agent}")
            return found

        return missing

    def _answered(self, learner: Learner) -> object:
        """Return the newest report of a member that the population answered."""
        client = learner.shards[0].population if learner.is_running else None
        return None if client is None else client._heard


def run(plan: Plan, trace: Callable[[str], None] | None = None) -> Result:
    """Run one plan to its end or to the first violation."""
    world = World(plan)
    world.trace = trace
    failure = None
    with _silence(), world.disk.in_use():
        try:
            _run(world)
        except (Exception, Violation) as error:  # whatever a decision raises is a finding
            failure = f"at {world.now:.2f} s: {type(error).__name__}: {error}"
            if trace is not None:
                raise
    return Result(plan, world.digest, world.num_events, world.marks, failure)


@contextmanager
def _silence() -> Iterator[None]:
    """Let no process log."""
    before, level = structlog.get_config(), logging.root.manager.disable
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        structlog.configure(**before)
        logging.disable(level)


def fail(_peer: object) -> None:
    """Called when a message causes an exception that its server survives."""
    raise Violation("an error of the product in a message") from sys.exception()


def _run(world: World) -> None:
    plan = world.plan
    cluster = Cluster(world)
    count = TaskBandit.count

    def counted(self: TaskBandit, inverse_temperature: float, episode_return: float, *rest: Any, **named: Any) -> None:
        cluster.bandit.count(episode_return)
        count(self, inverse_temperature, episode_return, *rest, **named)

    with patch.object(TaskBandit, "count", counted), patch.object(inbox, "warn_failed", fail), patch.object(ingest, "warn_failed", fail):
        world.checks.append(Invariants(cluster).check)
        for fault in plan.faults:
            world.schedule(fault)
        world.run_until(plan.fault_seconds)
        world.heal()
        missing = cluster.progress()
        if not world.run_until(plan.fault_seconds + PROGRESS_SECONDS, lambda: not missing()):
            raise AssertionError(f"{PROGRESS_SECONDS:.0f} s after the last fault: {', '.join(missing())}")


def shrink(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """Return a plan that still fails with as few faults as possible: leave out halves, quarters, and single ones."""
    size = max(1, len(plan.faults) // 2)
    while True:
        for start in range(0, len(plan.faults), size):
            smaller = replace(plan, faults=plan.faults[:start] + plan.faults[start + size :])
            if len(smaller.faults) < len(plan.faults) and fails(smaller):
                plan = smaller
                break
        else:
            if size == 1:
                return plan
            size = max(1, size // 2)


def command(plan: Plan) -> str:
    """Return the command that runs this plan again."""
    every = Plan.of(plan.seed).faults
    words = f"python -m tests.simulation {plan.seed}"
    if len(every) == len(plan.faults):
        return words
    chosen = [str(number) for number, fault in enumerate(every) if fault in plan.faults]
    return f"{words} --only {','.join(chosen) or 'none'}"
