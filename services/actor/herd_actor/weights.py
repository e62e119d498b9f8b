"""Keeps the actor's policy fresh: decides when to ask the parameter server for newer weights, and how long to wait for the answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from herd.run.checkpoints.manifest import CheckpointError
from herd.run.tensors import decode_weights
from herd.telemetry.logs import warn_limited

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.acting.policy import LocalPolicy
    from herd.config.services import ActorSettings
    from herd.protocols.weights.client import WeightsClient, WeightsFrame
    from herd.service.signals import Stop
    from herd.telemetry.telemetry import Telemetry
    from herd_actor.meters import Meters

WAIT_SECONDS = 0.25
"""Longest uninterrupted wait, so that a signal is noticed."""
FRESH_SECONDS = 0.02
"""An older request for weights is repeated before an unroll. This is about half an update of the fastest learner."""
UNUSABLE_SECONDS = 1.0
"""Pause after unusable weights: the server still has them and would send them again each time."""
Version = tuple[int, int]


class FreshWeights:
    """Loads newer weights into the policy: at each unroll's start, or every ``pull_interval_steps`` rows.

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
        self.num_unusable = 0
        """Number of dropped versions: damaged, of another network, or with numbers that are not finite."""
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
        try:
            self._policy.load(decode_weights(*frame.slices), frame.version)
        except CheckpointError as error:
            # The actor continues with the weights it has, or waits for the first ones.
            self.num_unusable += 1
            self._client.pause(UNUSABLE_SECONDS)
            warn_limited("weights unusable", "dropped weights that cannot be used", reason=str(error), dropped=self.num_unusable)
            return
        self.version = frame.version
        self._telemetry.set_weights_version(*self.version)
