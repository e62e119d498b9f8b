"""The actor's metrics: instruments resolved once."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from herd.telemetry import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from herd.telemetry import Counter
    from herd.telemetry.telemetry import Telemetry
    from herd.wire.unroll_links import UnrollLinks


class Meters:
    """About 30 series, so that thousands of actors stay scrapeable."""

    def __init__(self, telemetry: Telemetry) -> None:
        counter = telemetry.counter
        self._telemetry = telemetry
        self.env_frames = counter(names.ACTOR_ENV_FRAMES)
        self.episodes = counter(names.ACTOR_EPISODES)
        self.unrolls_sent = counter(names.ACTOR_UNROLLS_SENT)
        self.env_step_seconds = counter(names.ACTOR_ENV_STEP)
        self.inference_seconds = counter(names.ACTOR_INFERENCE)
        self.weights_wait_seconds = counter(names.ACTOR_WEIGHTS_WAIT)

    def watch(self, client: UnrollLinks, num_environments: int) -> None:
        """Export what the client counts."""
        read = self._telemetry.read
        read(names.ACTOR_BLOCKED, lambda: client.blocked_seconds)
        read(names.ACTOR_CREDIT, lambda: float(client.credit_unrolls))
        read(names.ACTOR_UNROLLS_RESENT, lambda: float(client.num_unrolls_resent))
        # An actor sends all its environments' unrolls in every message.
        read(names.ACTOR_UNACKNOWLEDGED, lambda: float(client.num_unacked * num_environments))
        read(names.ACTOR_UNROLLS_REJECTED, lambda: float(client.num_rejected * num_environments))
        read(names.BYTES_IN, lambda: float(client.bytes_in), stream="unrolls")
        read(names.BYTES_OUT, lambda: float(client.bytes_out), stream="unrolls")

    @contextmanager
    def timed(self, counter: Counter) -> Iterator[None]:
        """Add the block's wall time to ``counter``."""
        started = time.perf_counter()
        yield
        counter.inc(time.perf_counter() - started)
