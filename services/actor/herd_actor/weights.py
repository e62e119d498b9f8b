"""Keeps the actor's policy fresh: when the parameter server is asked for newer weights, and how long an answer is waited for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from herd.checkpoints.store import CheckpointError
from herd.checkpoints.weights import decode_weights
from herd.telemetry.logs import warn_limited

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.acting.policy import LocalPolicy
    from herd.config.settings import ActorSettings
    from herd.service.signals import Stop
    from herd.telemetry.telemetry import Telemetry
    from herd.wire.weights_client import WeightsClient, WeightsFrame
    from herd_actor.meters import Meters

WAIT_SECONDS = 0.25
"""Longest wait in one piece, so that a signal is noticed."""
FRESH_SECONDS = 0.02
"""Weights asked for longer ago than this are asked for again before an unroll: about half an update of the fastest learner here."""
UNUSABLE_SECONDS = 1.0
"""Until weights are asked for again after some that do not fit: the server still has those, and would send them each time."""
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
        """Versions that were dropped: damaged, of another network, or with numbers that are not finite."""
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
        self._num_rows = 0

    def wait_for_others(self, version: Version | None) -> None:
        """Wait for weights that are not of ``version``, or for the signal to stop."""
        while not self._stop and self.version == version:
            self._while_waiting()
            self._pull(WAIT_SECONDS)

    def before_unroll(self) -> None:
        """Take the newest there are."""
        if self._lockstep:
            # Batched A2C: these unrolls must be of the policy that learned from the last ones.
            self.wait_for_others(self._unroll_version)
        elif self._interval is None:
            # Once an answer is overdue, unrolls go on without waiting for it: a server that is away costs fresh weights, not frames.
            self._pull(0.0 if self._is_overdue else self._timeout_seconds)
            self._is_overdue = self._client.pending
        self._unroll_version = self.version

    def before_row(self, *, is_last: bool) -> None:
        """Ask where it is time, and without waiting take what has come."""
        if self._interval is None:
            if is_last:
                # The answer arrives while the last step is taken, so that the round trip costs no time.
                self._client.request(self.version)
            return
        if self._num_rows % self._interval == 0:
            self._client.request(self.version)
        self._num_rows += 1
        if self._client.pending and (frame := self._client.poll(0.0)) is not None:
            self._load(frame)

    def after_wait(self, waited_seconds: float) -> None:
        """Once credit was waited for: the answer under way may be of before the wait; take it, and ask again."""
        if self._interval is None and waited_seconds > FRESH_SECONDS:
            self._pull(0.0)

    def close(self) -> None:
        """Close at once."""
        self._client.close()

    def _pull(self, timeout_seconds: float) -> None:
        """Take what is newer than the weights held; wait for the answer at most ``timeout_seconds``."""
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
            # Whoever published them: the actor goes on with those it has, or waits for the first.
            self.num_unusable += 1
            self._client.pause(UNUSABLE_SECONDS)
            warn_limited("weights unusable", "dropped weights that cannot be used", reason=str(error), dropped=self.num_unusable)
            return
        self.version = frame.version
        self._telemetry.set_weights_version(*self.version)
