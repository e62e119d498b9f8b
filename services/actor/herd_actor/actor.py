"""The actor process: steps its environments, keeps its policy fresh, streams unrolls. One thread does it all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from herd.checkpoints.store import CheckpointError
from herd.checkpoints.weights import decode_weights
from herd.envs.make import make_environments
from herd.service.hardware import choose_precision, cpu_has_bfloat16, pin_to_cpu
from herd.service.process import ServiceProcess
from herd.telemetry.logs import warn_limited
from herd.wire.index_client import IndexLease
from herd.wire.messages import EpisodeReport, Place
from herd.wire.run_layout import run_layout
from herd.wire.unroll_client import UnrollClient
from herd.wire.unroll_links import Sent, UnrollLinks, choose_shards
from herd.wire.weights_client import WeightsClient
from herd_actor.meters import Meters
from herd_actor.policy import Policy
from herd_actor.temperatures import GameTemperatures
from herd_actor.unroll import UnrollBuilder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from herd.config.settings import RunSettings
    from herd.envs.api import FinishedGame, Observation
    from herd.service.signals import StopRequest
    from herd.wire.weights_client import WeightsFrame

    Arrays = dict[str, NDArray[np.generic]]

WAIT_SECONDS = 0.25
"""Longest wait in one piece, so that a signal is noticed."""
FRESH_SECONDS = 0.02
"""Weights asked for longer ago than this are asked for again before an unroll: about half an update of the fastest learner here."""
POLL_ROWS = 5
"""Steps between looks at the unroll socket: acknowledgements free memory and are in no hurry, and a look costs 60 us of cold cache."""
DRAIN_SECONDS = 2.0
"""At a stop, for the acknowledgement of what was sent."""
Version = tuple[int, int]


class IndexLostError(Exception):
    """Two actors would act under one index; the supervisor or Kubernetes starts this one afresh with another."""


class FinishedUnrolls(NamedTuple):
    """What one message will carry."""

    arrays: Arrays
    num_frames: int
    episodes: list[EpisodeReport]


def run(settings: RunSettings, stop: StopRequest) -> None:
    """Act until the signal.

    Raises:
        BadInputError: unknown task, or the metrics port in use.
    """
    if stop:
        return  # asked while torch was imported: nothing was begun
    with ServiceProcess("actor", settings) as process:
        actor = Actor(process, stop)
        try:
            if actor.wait_for_weights():
                actor.play()
        finally:
            actor.close()


def inference_precision(settings: RunSettings) -> torch.dtype:
    """bfloat16 where it was asked for or the CPU has it."""
    choice = choose_precision(settings.actor.inference_precision, has_bfloat16=cpu_has_bfloat16())
    return torch.bfloat16 if choice == "bfloat16" else torch.float32


class Actor:
    """Owns everything of the process; `play` is the hot loop."""

    def __init__(self, process: ServiceProcess, stop: StopRequest) -> None:
        settings, contract = process.settings, process.contract
        torch.set_num_threads(settings.actor.inference_threads)
        self._settings = settings
        self._stop = stop
        self._spec = process.spec
        self._layout = run_layout(settings, self._spec)
        self._num_environments = settings.actor.environments
        self._telemetry = process.telemetry
        self._meters = Meters(self._telemetry)
        context = process.context
        self._lease: IndexLease | None = None
        index = settings.actor.index
        if index is None:
            self._lease = IndexLease(context, settings.actor.paramserver, run_id=settings.name)
            place = self._lease.acquire(self._waits_for_index)
            if place is None:
                self._lease.close()
                raise SystemExit(0)  # told to stop before there was an index: nothing was begun
            index = place.actor_index
        self._place = Place(0, index)
        if settings.actor.pin_to_cpu:
            pin_to_cpu(index)
        self._client = UnrollLinks(
            [
                UnrollClient(
                    context,
                    endpoint,
                    layout=self._layout,
                    run_id=settings.name,
                    contract=contract,
                    actor_index=index,
                    max_unrolls=self._num_environments,
                    compression=settings.actor.compression,
                )
                for endpoint in choose_shards(settings.actor.learner, settings.actor.links, index)
            ]
        )
        self._meters.watch(self._client, self._num_environments)
        self._weights = WeightsClient(context, settings.actor.paramserver, run_id=settings.name, contract=contract)
        self._version: Version | None = None
        self._weights_overdue = False
        self._pull_interval = settings.actor.pull_interval_steps
        self._num_steps = 0
        first_slot = index * self._num_environments
        # A restarted actor must not play the games of the one before it again.
        seeds = np.random.SeedSequence([settings.seed, index, self._client.incarnation]).generate_state(2)
        self._environments = make_environments(
            settings.env,
            num_environments=self._num_environments,
            first_slot=first_slot,
            seed=int(seeds[0]) % 2**30,
            num_threads=settings.actor.environment_threads,
        )
        self._temperatures = GameTemperatures(
            context, settings, contract=contract, task_ids=self._environments.task_ids, first_slot=first_slot
        )
        self._policy = Policy(
            settings,
            self._spec,
            num_environments=self._num_environments,
            precision=inference_precision(settings),
            seed=int(seeds[1]),
        )
        self._builder = UnrollBuilder(self._layout, task_ids=self._environments.task_ids, first_slot=first_slot)
        self._first_slot = first_slot
        self._free_arrays: list[Arrays] = []
        self._lent_arrays: dict[Sent, Arrays] = {}
        process.serve_metrics()
        process.announce(index, "actor started", index=index, incarnation=self._client.incarnation)

    def _waits_for_index(self) -> bool:
        if self._lease is not None and self._lease.refused is not None:
            warn_limited("index refused", "the parameter server gives this actor no index", reason=self._lease.refused)
        return not self._stop

    def wait_for_weights(self) -> bool:
        """Wait for the first weights; False if told to stop before they came."""
        while not self._stop and self._version is None:
            self._telemetry.beat()
            self._pull_weights(WAIT_SECONDS)
            self._client.poll()
        self._telemetry.set_ready(self._version is not None)
        return self._version is not None

    def play(self) -> None:
        """Unroll after unroll: pull weights, act for T steps, wait for credit, send."""
        credit_first = self._settings.actor.credit == "before_unroll"
        observation = self._environments.reset()
        self._temperatures.ask_for_first_games()
        sent_version: Version | None = None
        while not self._stop:
            if credit_first and not self._wait_for_credit():
                break
            if self._settings.actor.lockstep:
                # Batched A2C: these unrolls must be of the policy that learned from the last ones.
                while not self._stop and self._version == sent_version:
                    self._telemetry.beat()
                    self._pull_weights(WAIT_SECONDS)
                    self._client.poll()
            elif self._pull_interval is None:
                # Once an answer is overdue, unrolls go on without waiting for it: a server that is away costs fresh weights, not frames.
                self._pull_weights(0.0 if self._weights_overdue else self._settings.actor.weights_timeout_seconds)
                self._weights_overdue = self._weights.pending
            sent_version = self._version
            observation, unrolls = self._unroll(observation)
            asked_at = time.monotonic()
            if unrolls is None or not self._wait_for_credit():
                break
            if self._pull_interval is None and time.monotonic() - asked_at > FRESH_SECONDS:
                # The answer under way is of before the wait: take it, and ask again.
                self._pull_weights(0.0)
            self._send(unrolls)

    def close(self) -> None:
        """Let the learner acknowledge what is under way, then close everything."""
        self._telemetry.set_ready(False, "stopping")
        self._client.drain(DRAIN_SECONDS)
        self._temperatures.close(self._first_slot // self._num_environments)
        self._client.close()
        self._weights.close()
        if self._lease is not None:
            self._lease.close()
        self._environments.close()

    def _unroll(self, observation: Observation) -> tuple[Observation, FinishedUnrolls | None]:
        """T steps from ``observation`` under the policy held, None if told to stop on the way; returns the next observation too."""
        meters, builder, policy, temperatures = self._meters, self._builder, self._policy, self._temperatures
        assert self._version is not None
        builder.begin(self._arrays(), observation, policy.core_state, self._version)
        episodes: list[EpisodeReport] = []
        num_valid = 0
        for row in range(self._layout.new_steps):
            if self._stop:
                return observation, None  # it could not be sent any more, and the rest of it may take longer than the grace period
            self._telemetry.beat()
            if row == self._layout.new_steps - 1:
                # Both answers arrive while the last step is taken, so that neither round trip costs time.
                self._client.request_credit(self._num_environments)
                if self._pull_interval is None:
                    self._weights.request(self._version)
            if self._pull_interval is not None:
                self._pull_on_the_way(self._pull_interval)
            builder.mark(observation, policy.core_state)
            temperatures.before_row(observation.game_reset)
            with meters.timed(meters.inference_seconds):
                actions, logits = policy.act(
                    observation, builder.core_reset, builder.last_actions, builder.last_rewards, temperatures.inverse_temperatures
                )
            with meters.timed(meters.env_step_seconds):
                transition = self._environments.step(actions)
            builder.add(actions, logits, temperatures.of_rows, transition)
            observation = transition.observation
            num_valid += int(np.count_nonzero(transition.valid))
            if transition.finished:
                episodes += map(self._episode_report, transition.finished)
                temperatures.finished(transition.finished, builder.episode_id)
            if row % POLL_ROWS == 0:
                self._client.poll()
            if self._lease is not None:
                self._lease.poll()
                if self._lease.place != self._place:
                    raise IndexLostError("the parameter server gave this actor's index to another while it was cut off")
        num_frames = num_valid * self._spec.action_repeat
        meters.env_frames.inc(num_frames)
        meters.episodes.inc(len(episodes))
        return observation, FinishedUnrolls(builder.finish(self._version), num_frames, episodes)

    def _episode_report(self, game: FinishedGame) -> EpisodeReport:
        return EpisodeReport(
            task_id=game.task_id,
            environment_slot=self._first_slot + game.environment,
            episode_id=self._builder.episode_id(game.environment),
            episode_return=game.episode_return,
            agent_steps=game.agent_steps,
        )

    def _arrays(self) -> Arrays:
        """Memory that no message under way still needs."""
        for sent in [sent for sent in self._lent_arrays if self._client.is_acked(sent)]:
            self._free_arrays.append(self._lent_arrays.pop(sent))
        return self._free_arrays.pop() if self._free_arrays else self._layout.allocate(self._num_environments)

    def _wait_for_credit(self) -> bool:
        """Wait until one message may go; False if told to stop before."""
        while not self._stop:
            self._telemetry.beat()
            if self._client.wait_for_credit(self._num_environments, WAIT_SECONDS):
                return True
            if self._client.refused is not None:
                warn_limited("refused", "the learner refuses this actor", reason=self._client.refused)
        return False

    def _send(self, unrolls: FinishedUnrolls) -> None:
        sent = self._client.send_unrolls(unrolls.arrays, num_frames=unrolls.num_frames, episodes=unrolls.episodes)
        self._lent_arrays[sent] = unrolls.arrays
        self._meters.unrolls_sent.inc(self._num_environments)

    def _pull_weights(self, timeout_seconds: float) -> None:
        """Take what is newer than the weights held; wait for the answer at most ``timeout_seconds``."""
        deadline = time.monotonic() + timeout_seconds
        with self._meters.timed(self._meters.weights_wait_seconds):
            self._weights.request(self._version)
            frame = self._weights.poll(min(timeout_seconds, WAIT_SECONDS))
            while frame is None and self._weights.pending and not self._stop and time.monotonic() < deadline:
                self._telemetry.beat()
                self._client.poll()
                frame = self._weights.poll(min(deadline - time.monotonic(), WAIT_SECONDS))
        if self._weights.refused is not None:
            warn_limited("weights refused", "the parameter server refuses this actor", reason=self._weights.refused)
        if frame is not None:
            self._load(frame)

    def _pull_on_the_way(self, interval: int) -> None:
        """Ask for newer weights every ``interval`` steps, and take them at the step that finds them there."""
        if self._num_steps % interval == 0:
            self._weights.request(self._version)
        self._num_steps += 1
        if self._weights.pending:
            frame = self._weights.poll(0.0)
            if frame is not None:
                self._load(frame)

    def _load(self, frame: WeightsFrame) -> None:
        try:
            self._policy.load(decode_weights(*frame.slices))
        except CheckpointError as error:
            warn_limited("weights unusable", "weights do not fit the network", reason=str(error))
            return
        self._version = (frame.lineage, frame.updates)
        self._telemetry.set_weights_version(*self._version)
