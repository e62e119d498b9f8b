"""The actor's metrics. Instruments are looked up once."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from herd.protocols.inference import metrics as inference_metrics
from herd.protocols.unrolls import metrics as names
from herd.telemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from herd.protocols.inference.client import InferenceClient
    from herd.protocols.unrolls.links import UnrollLinks
    from herd.telemetry import Counter, Histogram
    from herd.telemetry.telemetry import Telemetry


class Meters:
    """About 30 time series, and 8 more with remote inference, so that thousands of actors can be scraped."""

    def __init__(self, telemetry: Telemetry) -> None:
        counter = telemetry.counter
        self._telemetry = telemetry
        self._counts: dict[metrics.CounterMetric, Callable[[], float]] = {}
        self.env_frames = counter(names.ACTOR_ENV_FRAMES)
        self.episodes = counter(names.ACTOR_EPISODES)
        self.unrolls_sent = counter(names.ACTOR_UNROLLS_SENT)
        self.env_step_seconds = counter(names.ACTOR_ENV_STEP)
        self.inference_seconds = counter(names.ACTOR_INFERENCE)
        self.weights_wait_seconds = counter(names.ACTOR_WEIGHTS_WAIT)
        self.environments_replaced = counter(names.ACTOR_ENVIRONMENTS_REPLACED)
        self._round_trip: Histogram

    def watch(self, client: UnrollLinks, num_environments: int) -> None:
        """Export the client's counts in addition to those of earlier clients: an actor that moves gets a new client."""
        # An actor sends all its environments' unrolls in every message.
        self._telemetry.read(names.ACTOR_UNACKNOWLEDGED, lambda: float(client.num_unacked * num_environments))
        self._count_on(names.ACTOR_BLOCKED, lambda: client.blocked_seconds)
        self._count_on(names.ACTOR_UNROLLS_RESENT, lambda: float(client.num_unrolls_resent))
        self._count_on(names.ACTOR_UNROLLS_REJECTED, lambda: float(client.num_rejected * num_environments))
        self._count_on(metrics.BYTES_IN, lambda: float(client.bytes_in), stream="unrolls")
        self._count_on(metrics.BYTES_OUT, lambda: float(client.bytes_out), stream="unrolls")

    def _count_on(self, metric: metrics.CounterMetric, count: Callable[[], float], **labels: str) -> None:
        """Export ``count`` added to the value that is exported now."""
        before = self._counts[metric]() if metric in self._counts else 0.0
        self._counts[metric] = lambda: before + count()
        self._telemetry.read(metric, self._counts[metric], **labels)

    def watch_inference(self, clients: Sequence[InferenceClient]) -> None:
        """Export the response time of the inference service and the number of unanswered requests."""
        self._round_trip = self._telemetry.histogram(inference_metrics.ACTOR_ROUND_TRIP)
        self._telemetry.read(inference_metrics.ACTOR_REQUESTS_PENDING, lambda: float(sum(client.is_pending for client in clients)))

    def answered(self, round_trip_seconds: float) -> None:
        """Record the round trip of an answer of the inference service."""
        self._round_trip.observe(round_trip_seconds)

    @contextmanager
    def timed(self, counter: Counter) -> Iterator[None]:
        """Add the block's wall time to ``counter``."""
        started = time.perf_counter()
        yield
        counter.inc(time.perf_counter() - started)
