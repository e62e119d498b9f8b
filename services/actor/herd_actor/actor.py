"""The actor process: steps its environments, keeps its policy fresh and sends unrolls, all in one thread."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from herd.acting.remote_policy import WAIT_SECONDS, StoppedWaitingError
from herd.acting.row_state import RowState
from herd.acting.temperatures import Temperatures
from herd.components.suites import make_environments
from herd.components.suites.api import BrokenEnvironmentError, UnknownTaskError
from herd.config.run_contract import run_layout
from herd.protocols.unrolls.client import UnrollClient
from herd.protocols.unrolls.links import UnrollLinks, choose_shards, link_incarnations, shards_of_agent
from herd.protocols.unrolls.messages import EpisodeReport
from herd.service.host import pin_to_cpu
from herd.service.process import ServiceProcess
from herd.service.startup import BadInputError
from herd_actor.assignment import Assignments
from herd_actor.loop import Group, play_rows
from herd_actor.meters import Meters
from herd_actor.policies import RemotePolicies, group_sizes
from herd_actor.sending import UnrollSender
from herd_actor.temperatures import ReportedTemperatures
from herd_actor.unroll import UnrollBuilder
from herd_actor.weights import local_policies

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from herd.acting.policy import Policy
    from herd.components.suites.api import BatchedEnvironment, FinishedGame
    from herd.config.run import RunSettings
    from herd.service.identity import Identity
    from herd.service.signals import Stop
    from herd_actor.assignment import Assignment
    from herd_actor.policies import Policies
    from herd_actor.sending import Unrolls

POLL_ROWS = 5
"""Number of steps between polls of the unroll socket. Acknowledgements only free memory, and a poll costs 60 us of cold cache."""
DRAIN_SECONDS = 2.0
"""Longest wait at the end of an assignment for the acknowledgement of sent messages."""


def run(settings: RunSettings, identity: Identity, stop: Stop) -> None:
    """Act in one place after the other until the signal.

    Raises:
        BadInputError: a task is unknown or its packages are missing; the learners do not match the agents; the metrics port is in use.
        SystemExit: an environment failed.
    """
    if stop:
        return  # the request came while torch was imported: nothing was started
    torch.set_num_threads(settings.actor.inference_threads)
    try:
        for _ in acting(settings, identity, stop):
            pass
    except BrokenEnvironmentError as error:
        raise SystemExit(f"actor: {error}") from error  # one line and exit code 1: the supervisor starts another process


def acting(settings: RunSettings, identity: Identity, stop: Stop, *, raise_errors: bool = False) -> Generator[Actor]:
    """Act in one place after the other. Yields control after each message of unrolls, so that the caller can do other work.

    Args:
        settings: see `run`.
        identity: see `run`.
        stop: see `run`.
        raise_errors: for a debugger, see `herd.components.suites.api.Slots`.

    Raises:
        BadInputError: see `run`.
        BrokenEnvironmentError: an environment failed.
    """
    with (
        ServiceProcess("actor", settings, identity) as process,
        closing(Assignments(process.context, settings, identity, stop)) as assignments,
    ):
        meters = Meters(process.telemetry)
        is_announced = False
        for assignment in assignments:
            actor = Actor(process, meters, assignment, raise_errors=raise_errors)
            try:
                if not is_announced:
                    is_announced = True
                    process.serve_metrics()
                    # With several agents, an index without an agent only names this process and is not a place.
                    named = identity.index if identity.agent is None else None
                    process.announce("serving metrics", actor.number if named is None else named)
                if actor.wait_for_policy():
                    for _ in actor.play():
                        yield actor
            finally:
                actor.close()


class Actor:
    """Owns all resources of one assignment; `play` is the hot loop."""

    def __init__(self, process: ServiceProcess, meters: Meters, assignment: Assignment, *, raise_errors: bool) -> None:
        settings, contract, context = process.settings, process.contract, process.context
        agent, index = assignment.place
        self.number = index * settings.agents + agent
        """Number among the actors of all agents."""
        self._settings = settings
        self._raise_errors = raise_errors
        self._assignment = assignment
        self._spec = process.spec
        self._layout = run_layout(settings, self._spec)
        self._num_environments = settings.actor.environments
        self._telemetry = process.telemetry
        self._log = process.log
        self._meters = meters
        try:
            learners = shards_of_agent(process.identity.addresses["learner"], settings.agents, agent)
        except ValueError as error:
            raise BadInputError(str(error)) from error
        if settings.actor.pin_to_cpu:
            pin_to_cpu(self.number)
        shards = choose_shards(learners, settings.actor.links, index)
        self._client = UnrollLinks(
            [
                UnrollClient(
                    context,
                    endpoint,
                    layout=self._layout,
                    run_id=settings.name,
                    agent=agent,
                    contract=contract,
                    actor_index=index,
                    max_unrolls=self._num_environments,
                    compression=settings.actor.compression,
                    incarnation=incarnation,
                )
                for endpoint, incarnation in zip(shards, link_incarnations(len(shards)), strict=True)
            ]
        )
        meters.watch(self._client, self._num_environments)
        # A restarted actor must not repeat the games of its predecessor, unless the whole run repeats. Agent 0 of several plays the games
        # of a single agent.
        start = 0 if settings.repeats else self._client.incarnation
        entropy = [settings.seed, index, start, *([agent] if agent else [])]
        seeds = np.random.SeedSequence(entropy).generate_state(2)
        is_remote = settings.actor.inference == "remote"
        sizes = group_sizes(self._num_environments, is_remote=is_remote)
        self._policies: Policies
        if is_remote:
            incarnation = self._client.incarnation
            self._policies = RemotePolicies(
                process, assignment, sizes=sizes, incarnation=incarnation, meters=meters, while_waiting=self._while_waiting
            )
        else:
            self._policies = local_policies(process, assignment, seed=int(seeds[1]), meters=meters, while_waiting=self._while_waiting)
        self._sender = UnrollSender(
            self._client,
            self._layout,
            num_environments=self._num_environments,
            meters=meters,
            stop=assignment,
            beat=self._beat,
        )
        self._environments: list[BatchedEnvironment] = []
        self._temperatures: list[ReportedTemperatures] = []
        self._groups: list[Group] = []
        first = 0
        for size, policy in zip(sizes, self._policies.of_groups, strict=True):
            self._groups.append(self._new_group(process, policy, slice(first, first + size), seed=int(seeds[0]) % 2**30))
            first += size
        process.log.info("actor started", agent=agent, index=index, incarnation=self._client.incarnation)

    def _new_group(self, process: ServiceProcess, policy: Policy[Any], in_message: slice, *, seed: int) -> Group:
        """Make the environments ``in_message`` of this actor, before their first games."""
        settings, (agent, index) = self._settings, self._assignment.place
        num_environments = in_message.stop - in_message.start
        first_slot = index * self._num_environments + in_message.start
        try:
            environments = make_environments(
                settings.env,
                num_environments=num_environments,
                first_slot=first_slot,
                seed=seed,
                num_threads=settings.actor.environment_threads,
                raise_errors=self._raise_errors,
                beat=process.telemetry.beat,
                replaced=self._meters.environments_replaced.inc,
            )
        except UnknownTaskError as error:
            raise BadInputError(str(error)) from error
        self._environments.append(environments)
        task_ids = environments.task_ids
        temperatures = Temperatures()
        if settings.loss.draws_temperatures:
            temperatures = reported = ReportedTemperatures(process, agent=agent, task_ids=task_ids, first_slot=first_slot)
            self._temperatures.append(reported)
        reorders = settings.actor.inference == "local"
        state = RowState(self._spec, settings.network, temperatures, num_environments=num_environments, reorders=reorders)
        builder = UnrollBuilder(self._layout, state, task_ids=task_ids, first_slot=first_slot)
        return Group(environments, state, builder, policy, in_message)

    def wait_for_policy(self) -> bool:
        """Wait until a policy can act; False if the assignment ends before."""
        return self._policies.wait()

    def play(self) -> Iterator[None]:
        """Make unrolls: fetch weights for a local policy, act for T steps, wait for credit, send. Yields control after each message."""
        credit_first = self._settings.actor.credit == "before_unroll"
        for group in self._groups:
            group.reset()
        while not self._assignment:
            if credit_first and not self._wait_for_credit():
                break
            self._policies.before_unroll()
            unrolls = self._unroll()
            if unrolls is None or not self._wait_for_credit():
                break
            self._policies.before_send(self._num_environments)
            self._sender.send(unrolls)
            yield

    def wait_until_received(self) -> None:
        """Wait until the learner has acknowledged all messages, or the assignment ends."""
        while not self._assignment and not self._client.drain(WAIT_SECONDS):
            self._telemetry.beat()

    def close(self) -> None:
        """Wait for the learner to acknowledge messages under way, then close everything."""
        self._telemetry.set_ready(False, "leaving its place")
        if not self._assignment.run_is_over:
            self._client.drain(DRAIN_SECONDS)
        for temperatures in self._temperatures:
            temperatures.close(self.number)
        self._client.close()
        self._policies.close()
        for environments in self._environments:
            environments.close()

    def _wait_for_credit(self) -> bool:
        """Wait for the credit for one message; False if the assignment ends before."""
        asked_at = time.monotonic()
        if not self._sender.wait_for_credit():
            return False
        self._policies.after_wait(time.monotonic() - asked_at)
        return True

    def _unroll(self) -> Unrolls | None:
        """Play T steps in every group; None if the assignment ends before."""
        unrolls = self._sender.new_unrolls()
        for group in self._groups:
            arrays = {name: array[group.in_message] for name, array in unrolls.arrays.items()}
            group.builder.begin(arrays, group.observation)
        num_valid = 0
        try:
            for group, transition in play_rows(self._groups, self._layout.new_steps, before_row=self._before_row, meters=self._meters):
                num_valid += int(np.count_nonzero(transition.valid))
                unrolls.episodes += [_episode_report(group, game) for game in transition.finished]
        except StoppedWaitingError:
            return None
        if self._assignment:
            return None  # it could no longer be sent, and finishing it may take longer than the grace period
        for group in self._groups:
            group.builder.finish()
        unrolls.num_frames = num_valid * self._spec.action_repeat
        self._meters.env_frames.inc(unrolls.num_frames)
        self._meters.episodes.inc(len(unrolls.episodes))
        return unrolls

    def _before_row(self, row: int) -> bool:
        """Do the work between rows; False if the assignment is over."""
        if self._assignment:
            return False
        self._telemetry.beat()
        is_last = row == self._layout.new_steps - 1
        if is_last:
            self._sender.request_credit()
        self._policies.before_row(is_last=is_last)
        if row % POLL_ROWS == 0:
            self._client.poll()
            self._beat()
        return True

    def _while_waiting(self) -> None:
        self._client.poll()
        self._beat()

    def _beat(self) -> None:
        """Report that this process is alive. End it with the run if no other agent has work and no supervisor would restart it."""
        self._telemetry.beat()
        is_free = self._settings.agents == 1 and not self._settings.stop.wait_for_signal
        if is_free and self._client.run_is_over and not self._assignment.run_is_over:
            self._log.info("the run is over")
            self._assignment.run_is_over = True


def _episode_report(group: Group, game: FinishedGame) -> EpisodeReport:
    return EpisodeReport(
        task_id=game.task_id,
        environment_slot=int(group.builder.slots[game.environment]),
        episode_id=int(group.state.episode_ids[game.environment]),
        episode_return=game.episode_return,
        agent_steps=game.agent_steps,
    )
