"""Keeps the actor's policy fresh: decides when to ask the parameter server for newer weights, and how long to wait for the answer."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from herd.acting.policy import LocalPolicy, inference_precision, load_received
from herd.acting.remote_policy import WAIT_SECONDS
from herd.agent import build_agent
from herd.telemetry.logs import get_logger, warn_limited
from herd_actor.policies import Policies

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.acting.policy import Version
    from herd.config.services import ActorSettings
    from herd.protocols.weights.client import WeightsClient, WeightsFrame
    from herd.service.process import ServiceProcess
    from herd.service.signals import Stop
    from herd.telemetry.telemetry import Telemetry
    from herd_actor.assignment import Assignment
    from herd_actor.meters import Meters

FRESH_SECONDS = 0.02
"""An older request for weights is repeated before an unroll. This is about half an update of the fastest learner."""
REPEATABLE_SECONDS = 30.0
"""Longest wait of a run that repeats for the policy that has learned from the last unrolls. Then it takes the newest, as others do."""


def local_policies(
    process: ServiceProcess, assignment: Assignment, *, seed: int, meters: Meters, while_waiting: Callable[[], None]
) -> FreshWeights:
    """Make one policy, in this process, for all environments together."""
    settings = process.settings
    policy = LocalPolicy(build_agent(settings, process.spec), seed=seed, precision=inference_precision(settings))
    make: Callable[..., FreshWeights] = FreshWeights
    if settings.repeats and not settings.actor.lockstep:
        make = partial(
            RepeatableWeights,
            unrolls_per_batch=settings.num_online_unrolls,
            updates_per_batch=settings.learner.sample_reuse,
            publish_interval_updates=settings.learner.publish_interval_updates,
        )
    return make(
        process.weights_client(assignment.place.agent),
        policy,
        settings.actor,
        telemetry=process.telemetry,
        meters=meters,
        stop=assignment,
        while_waiting=while_waiting,
    )


class FreshWeights(Policies):
    """One policy for all environments, into which newer weights are loaded: at each unroll's start, or every ``pull_interval_steps`` rows.

    ``while_waiting`` is called at least every ``WAIT_SECONDS`` of a wait.
    """

    def __init__(
        self,
        client: WeightsClient,
        policy: LocalPolicy,
        settings: ActorSettings,
        *,
        telemetry: Telemetry,
        meters: Meters,
        stop: Stop,
        while_waiting: Callable[[], None],
    ) -> None:
        self.version: Version | None = None
        """(lineage, learner updates) of the policy's weights; None before the first."""
        self.of_groups = [policy]
        self._client = client
        self._policy = policy
        self._timeout_seconds = settings.weights_timeout_seconds
        self._interval = settings.pull_interval_steps
        self._lockstep = settings.lockstep
        self._telemetry = telemetry
        self._meters = meters
        self._stop = stop
        self._while_waiting = while_waiting
        self._is_overdue = False
        self._unroll_version: Version | None = None
        self._waited_seconds = 0.0  # for credit, since the last row of the last unroll
        self._num_rows = 0

    def wait(self) -> bool:
        """Wait until there are weights; False if told to stop before."""
        self.wait_for_others(None)
        self._telemetry.set_ready(self.version is not None)
        return self.version is not None

    def wait_for_others(self, version: Version | None) -> None:
        """Wait for weights of another version than ``version``, or for the signal to stop."""
        while not self._stop and self.version == version:
            self._while_waiting()
            self._pull(WAIT_SECONDS)

    def before_unroll(self) -> None:
        """Load the newest weights."""
        if self._lockstep:
            # Batched A2C: these unrolls must be played by the policy that has learned from the last ones.
            self.wait_for_others(self._unroll_version)
        elif self._interval is None:
            # When an answer is overdue, unrolls continue without it: an unavailable server makes weights older but stops no frames.
            self._pull(0.0 if self._is_overdue else self._timeout_seconds)
            self._is_overdue = self._client.pending
        self._unroll_version = self.version

    def before_row(self, *, is_last: bool) -> None:
        """Send a request if it is due, and load weights that have arrived, without waiting."""
        if self._interval is None:
            if is_last:
                # The answer arrives during the last step, so the round trip costs no time. After a wait for credit it would be too old, and
                # an actor that has waited will probably wait again.
                if self._waited_seconds <= FRESH_SECONDS:
                    self._client.request(self.version)
                self._waited_seconds = 0.0
            return
        if self._num_rows % self._interval == 0:
            self._client.request(self.version)
        self._num_rows += 1
        if self._client.pending and (frame := self._client.poll(0.0)) is not None:
            self._load(frame)

    def after_wait(self, waited_seconds: float) -> None:
        """Called after a wait for credit. An answer under way may be as old as the wait, so it is loaded and a new request is sent."""
        self._waited_seconds += waited_seconds
        if self._interval is None and waited_seconds > FRESH_SECONDS:
            if self._client.pending:
                self._pull(0.0)
            self._client.request(self.version)

    def close(self) -> None:
        """Close at once."""
        self._client.close()

    def _pull(self, timeout_seconds: float) -> None:
        """Load newer weights; wait for the answer at most ``timeout_seconds``."""
        deadline = time.monotonic() + timeout_seconds
        with self._meters.timed(self._meters.weights_wait_seconds):
            self._client.request(self.version)
            frame = self._client.poll(min(timeout_seconds, WAIT_SECONDS))
            while frame is None and self._client.pending and not self._stop and time.monotonic() < deadline:
                self._while_waiting()
                frame = self._client.poll(min(deadline - time.monotonic(), WAIT_SECONDS))
        if self._client.refused is not None:
            warn_limited("weights refused", "the parameter server refuses this actor", reason=self._client.refused)
        if frame is not None:
            self._load(frame)

    def _load(self, frame: WeightsFrame) -> None:
        if load_received(self._client, frame, self._policy.load):
            self.version = frame.version
            self._telemetry.set_weights_version(*self.version)


class RepeatableWeights(FreshWeights):
    """In a run that repeats: each message of unrolls is played by the policy that has learned from all messages but the last one.

    That policy is fetched before the last one is sent, because until then the learner cannot go further. It trains on one message while
    the next one is played.
    """

    def __init__(
        self, *arguments: Any, unrolls_per_batch: int, updates_per_batch: int, publish_interval_updates: int, **named: Any
    ) -> None:
        """See `FreshWeights` for the other arguments.

        The learner does ``updates_per_batch`` with each ``unrolls_per_batch``, and publishes each ``publish_interval_updates``-th one.
        """
        super().__init__(*arguments, **named)
        self._unrolls_per_batch = unrolls_per_batch
        self._updates_per_batch = updates_per_batch
        self._publish_interval = publish_interval_updates
        self._first: Version | None = None
        self._num_sent = 0
        self._gives_up = False

    def before_unroll(self) -> None:
        """See `FreshWeights`; as long as the run repeats, the weights are there."""
        if self._gives_up:
            super().before_unroll()

    def before_row(self, *, is_last: bool) -> None:
        """See `FreshWeights`; as long as the run repeats, nothing is due inside an unroll."""
        if self._gives_up:
            super().before_row(is_last=is_last)

    def after_wait(self, waited_seconds: float) -> None:
        """See `FreshWeights`."""
        if self._gives_up:
            super().after_wait(waited_seconds)

    def before_send(self, num_unrolls: int) -> None:
        """See `FreshWeights`."""
        if self._first is None or (self.version is not None and self.version[0] != self._first[0]):
            self._first, self._num_sent = self.version, 0  # the run's start, or a learner that was restarted
        deadline = time.monotonic() + REPEATABLE_SECONDS
        while not (self._gives_up or self._stop or self._has_learned):
            if time.monotonic() > deadline:
                get_logger().warning("the learner has lost unrolls: this run will not repeat", waited_seconds=REPEATABLE_SECONDS)
                self._gives_up = True
                break
            self._while_waiting()
            self._pull(WAIT_SECONDS)
        self._num_sent += num_unrolls

    @property
    def _has_learned(self) -> bool:
        """Whether the policy has learned from everything that was sent in its lineage."""
        if self.version is None or self._first is None:
            return False
        updates = self._first[1] + self._num_sent // self._unrolls_per_batch * self._updates_per_batch
        published = updates // self._publish_interval * self._publish_interval
        return self.version[0] != self._first[0] or self.version[1] >= published
